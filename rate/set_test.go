package rate

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLimiter_setWhileUnitsAreTaken sets limits and bursts, also those that only x/time/rate has, while units are taken at one
// instant. Setting adds no unit, so no more than the burst is granted; while the burst stays the same, no unit is lost either.
func TestLimiter_setWhileUnitsAreTaken(t *testing.T) {
	const burst = 60_000
	now := time.Unix(1_000_000, 0)
	for name, tt := range map[string]struct {
		set   func(l *Limiter, r *rand.Rand)
		exact bool
	}{
		"limits": {func(l *Limiter, r *rand.Rand) { l.SetLimitAt(now, [...]Limit{0, 1, 2}[r.IntN(3)]) }, true},
		"bursts": {func(l *Limiter, r *rand.Rand) { l.SetBurstAt(now, [...]int{burst, burst, burst / 2, 0}[r.IntN(4)]) }, false},
		"both": {func(l *Limiter, r *rand.Rand) {
			l.SetLimitAt(now, Limit(r.IntN(3)))
			l.SetBurstAt(now, [...]int{burst, burst - 1}[r.IntN(2)])
		}, false},
	} {
		l := NewLimiter(1, burst)
		require.True(t, l.AllowN(now, 1))
		var granted atomic.Int64
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				own := int64(0)
				for range burst / 2 {
					if l.AllowN(now, 1) {
						own++
					}
				}
				granted.Add(own)
			})
		}
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, 2))
			for range 300 {
				tt.set(l, r)
			}
		})
		wg.Wait()
		l.SetLimitAt(now, 1)
		for l.AllowN(now, 1) {
			granted.Add(1)
		}
		if tt.exact {
			require.EqualValues(t, burst-1, granted.Load(), name)
		}
		require.LessOrEqual(t, granted.Load(), int64(burst-1), name)
	}
}
