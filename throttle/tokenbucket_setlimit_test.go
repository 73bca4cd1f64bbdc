package throttle_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// Eight goroutines claim and cancel while eight change the rate: at one instant this
// neither adds nor removes units, whatever the rates are, except that a Cancel after a
// change returns nothing.
func TestTokenBucket_setLimitUnderContention(t *testing.T) {
	const burst = 100_000
	b := throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: 7, Per: time.Second, Burst: burst}), new(atomicClock))
	kept, canceled := take(t, b, 1), new(atomic.Int64)
	var wg sync.WaitGroup
	for id := range uint64(8) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(id, 7))
			for range 500 {
				c := throttle.Claim{Cost: 1 + r.Int64N(5)}
				if d, _ := b.Reserve(t.Context(), c); d.OK && r.IntN(3) > 0 {
					kept.Add(c.Cost)
				} else {
					b.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
					canceled.Add(c.Cost)
				}
			}
		})
		wg.Go(func() {
			r := rand.New(rand.NewPCG(id, 8))
			for range 200 {
				l := throttle.Limit{Count: 1 + r.Int64N(1000), Per: periods[3+r.IntN(3)], Burst: burst}
				if err := b.SetLimit(l); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	d, _ := b.Reserve(t.Context(), throttle.Claim{DryRun: true})
	require.LessOrEqual(t, d.Remaining, burst-kept.Load())
	require.GreaterOrEqual(t, d.Remaining, burst-kept.Load()-canceled.Load())
}

// The same while time passes: equal rates in different terms restore the same units as one
// rate.
func TestTokenBucket_setLimitWhileTimePasses(t *testing.T) {
	slow, fast := throttle.Limit{Count: 3, Per: time.Second, Burst: 1 << 20}, throttle.Limit{Count: 1000, Per: time.Second, Burst: 1 << 20}
	clk := new(atomicClock)
	b := throttle.WithClock(throttle.NewTokenBucket(slow), clk)
	kept := take(t, b, slow.Burst)
	kept.Store(0)
	var wg sync.WaitGroup
	for id := range uint64(8) {
		wg.Go(func() {
			for i := range 300 {
				clk.ns.Add(int64(10 * time.Millisecond))
				for d, _ := b.Reserve(t.Context(), throttle.Claim{}); d.OK; d, _ = b.Reserve(t.Context(), throttle.Claim{}) {
					kept.Add(1)
				}
				if (i+int(id))%7 == 0 {
					b.SetLimit([]throttle.Limit{slow, fast}[i%2])
				}
			}
		})
	}
	wg.Wait()
	passed := clk.ns.Load()
	require.LessOrEqual(t, kept.Load(), floor(inflow(fast, passed)))
	require.GreaterOrEqual(t, kept.Load(), floor(inflow(slow, passed))-8)
}

// Report returns nothing of a claim that was granted before the latest change
// of the limit (issue 13: the history of former limits is gone). The same limit again is
// no change.
func TestTokenBucket_cancelAcrossSetLimit(t *testing.T) {
	from := throttle.Limit{Count: 1, Per: time.Second, Burst: 100}
	for name, tt := range map[string]struct {
		to   throttle.Limit
		left int64
	}{
		"same":         {from, 100},
		"faster":       {throttle.Limit{Count: 50, Per: time.Second, Burst: 100}, 40},
		"larger burst": {throttle.Limit{Count: 1, Per: time.Second, Burst: 200}, 40},
		"a cut":        {throttle.Limit{Count: 1, Per: time.Second, Burst: 30}, 30},
	} {
		for _, observed := range []bool{false, true} {
			b := throttle.WithClock(throttle.NewTokenBucket(from), new(atomicClock))
			c := throttle.Claim{Cost: 60}
			d := reserve(t, b, c)
			require.NoError(t, b.SetLimit(tt.to))
			if left := tt.left; observed {
				b.Report(t.Context(), c, d, throttle.Feedback{Cost: 59})
				require.Equal(t, min(left, 41), remaining(t, b), "%s, observed", name)
			} else {
				b.Report(t.Context(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
				require.Equal(t, left, remaining(t, b), "%s, canceled", name)
			}
		}
	}
}

func TestTokenBucket_setLimitAt(t *testing.T) {
	b := throttle.WithClock(throttle.NewTokenBucket(throttle.PerSecond(10)), new(atomicClock)).(interface { // as package rate needs it
		throttle.Limiter
		Limit() throttle.Limit
		SetLimitAt(now time.Time, l throttle.Limit) error
	})
	start := time.Unix(0, 0)
	reserve(t, b, throttle.Claim{Cost: 10, Now: start})
	next := throttle.PerSecond(20)
	require.NoError(t, b.SetLimitAt(start.Add(500*time.Millisecond), next))
	require.Equal(t, next, b.Limit())
	require.EqualValues(t, 15, reserve(t, b, throttle.Claim{Now: start.Add(time.Second), DryRun: true}).Remaining)
	require.Error(t, b.SetLimitAt(start, throttle.Limit{}))
}

// The latest reading at which a claim was granted is kept when the limit changes.
func TestTokenBucket_olderReadingAfterSetLimit(t *testing.T) {
	clk := new(atomicClock)
	b := throttle.WithClock(throttle.NewTokenBucket(throttle.PerSecond(5)), clk)
	newest := time.Unix(10, 0)
	reserve(t, b, throttle.Claim{Now: newest})
	require.NoError(t, b.SetLimit(throttle.PerSecond(6)))
	require.Equal(t, newest.UTC(), reserve(t, b, throttle.Claim{Now: time.Unix(5, 0)}).At.UTC())
}

// A Cancel with a reading far ahead of the others returns nothing, even if the origin of
// ticks has to move.
func TestTokenBucket_cancelWithFutureReading(t *testing.T) {
	b := throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: 999_999_937, Per: time.Second, Burst: 5}), new(atomicClock))
	d := reserve(t, b, throttle.Claim{Cost: 2})
	reserve(t, b, throttle.Claim{Cost: 3})
	b.Report(t.Context(), throttle.Claim{Cost: 2, Now: time.Unix(1e9, 0)}, d, throttle.Feedback{Now: time.Unix(1e9, 0), State: throttle.Unused})
	require.Zero(t, remaining(t, b))
}
