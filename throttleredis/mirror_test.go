package throttleredis

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/throttletest"
)

// A Fallback conforms to the tests of limiters like the limit on Redis. The calls use real
// time, so Timeout must be long.
func TestFallback_conformance(t *testing.T) {
	ten := throttle.Limit{Name: "ten", Count: 10, Per: time.Second, Burst: 10}
	for name, processes := range map[string]int{"alone": 0, "with a share": 2} {
		t.Run(name, func(t *testing.T) {
			wrap := func(l throttle.Limiter) throttle.Limiter {
				return &Fallback{Limiter: divisible{l}, Processes: processes, Timeout: time.Minute}
			}
			throttletest.TestLimiter(t, func(clk throttle.Clock) throttle.Limiter {
				return wrap(throttle.WithClock(throttle.NewTokenBucket(ten), clk))
			}, throttletest.Spec{Limit: ten, Wrap: wrap, Histories: 100})
		})
	}
}

// A divisible limiter has shares, each of which is the whole limiter.
type divisible struct{ throttle.Limiter }

func (divisible) Share(int, int) throttle.Limiter {
	return throttle.NewTokenBucket(throttle.PerSecond(5))
}

func (d divisible) Report(ctx context.Context, c throttle.Claim, by throttle.Decision, f throttle.Feedback) {
	d.Limiter.Report(ctx, c, by, f)
}

// Units that are returned to Redis are returned to the share, because claims in flight
// would otherwise exhaust it.
func TestFallback_shareObservesEnds(t *testing.T) {
	for name, end := range map[string]func(*Fallback, throttle.Decision){
		"cancel": func(f *Fallback, d throttle.Decision) {
			f.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Unused})
		},
		"observe": func(f *Fallback, d throttle.Decision) {
			f.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{})
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newFakeRedis()
			r.Limiter = throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 4})
			f := &Fallback{Limiter: concurrencyRemote{r}, Processes: 2}
			for range 100 {
				end(f, claim(t, f, throttle.Claim{}))
			}
			held := claim(t, f, throttle.Claim{})
			r.set(errDown, 0)
			for _, ok := range []bool{true, false} {
				d := claim(t, f, throttle.Claim{})
				require.True(t, d.Degraded, name)
				require.Equal(t, ok, d.OK, "%s: one of two places is in use", name)
			}
			end(f, held)
		})
	}
}

// concurrencyRemote is a fakeRedis whose shares are concurrency limits.
type concurrencyRemote struct{ *fakeRedis }

func (concurrencyRemote) Share(processes, _ int) throttle.Limiter {
	return throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 4 / int64(processes)})
}
