package xtime_test

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"

	"github.com/heed-go/heed/rate/xtime"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/throttletest"
)

func TestLimiter_conformance(t *testing.T) {
	for name, l := range map[string]struct {
		new  maker
		spec throttletest.Spec
	}{
		"whole":  {newRate(10, 10), throttletest.Spec{Bound: early(10, 10)}},
		"thirds": {newRate(1./3, 4), throttletest.Spec{Bound: early(1./3, 4)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			throttletest.TestLimiter(t, l.new, l.spec)
		})
	}
}

func TestLimiter_allocatesNothing(t *testing.T) {
	ctx, l := t.Context(), xtime.New(rate.NewLimiter(1e9, 1e9), "rate")
	for _, c := range []throttle.Claim{{Key: "api.example.com", Cost: 2}, {Now: time.Now()}, {DryRun: true}} {
		require.Zero(t, testing.AllocsPerRun(200, func() {
			d, _ := l.Reserve(ctx, c)
			l.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
			d, _ = l.Reserve(ctx, c)
			l.Report(ctx, c, d, throttle.Feedback{Cost: 1})
		}))
	}
}

// Where rate.Limiter does not round, the decisions are those of TokenBucket.
func TestLimiter_agreesWithTokenBucket(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 9))
		perSecond, burst := 1+r.Int64N(50), 1+r.Int64N(20)
		clk := new(atomicClock)
		theirs := newRate(rate.Limit(perSecond), int(burst))(clk)
		ours := newBucket(perSecond, time.Second, burst)(clk)
		for range 100 {
			clk.ns.Add(r.Int64N(2) * r.Int64N(500) * int64(time.Millisecond))
			c := throttle.Claim{Cost: 1 + r.Int64N(burst+1), DryRun: r.IntN(4) == 0}
			a, b := reserve(t, theirs, c), reserve(t, ours, c)
			require.Equal(t, b.OK, a.OK, "%+v: %+v, %+v", c, b, a)
			require.Equal(t, b.Remaining, a.Remaining, "%+v: %+v, %+v", c, b, a)
			require.InDelta(t, float64(b.Wait), float64(a.Wait), 1, "%+v: %+v, %+v", c, b, a)
			require.InDelta(t, float64(b.ResetAfter), float64(a.ResetAfter), 1e3, "%+v: %+v, %+v", c, b, a)
		}
	}
}

func TestLimiter_zeroAndInfiniteLimits(t *testing.T) {
	clk := new(atomicClock)
	free := newRate(rate.Inf, 0)(clk)
	d := reserve(t, free, throttle.Claim{Cost: math.MaxInt64})
	require.True(t, d.OK && d.Limit == 0)
	free.Report(t.Context(), throttle.Claim{Cost: math.MaxInt64}, d, throttle.Feedback{State: throttle.Unused})

	once := newRate(0, 3)(clk)
	require.True(t, reserve(t, once, throttle.Claim{Cost: 3}).OK)
	require.Equal(t, throttle.Forever, reserve(t, once, throttle.Claim{}).Wait)

	never := newRate(10, 0)(clk)
	require.Equal(t, throttle.Forever, reserve(t, never, throttle.Claim{}).Wait)
}

// A claim that was granted without a limit has taken no tokens, so Cancel returns none after a
// limit was set.
func TestLimiter_cancelOfUnlimited(t *testing.T) {
	clk := new(atomicClock)
	old := rate.NewLimiter(rate.Inf, 5)
	l := throttle.WithClock(xtime.New(old, "old"), clk)
	d := reserve(t, l, throttle.Claim{Cost: 4})
	old.SetLimitAt(clk.Now(), 1)
	require.True(t, old.AllowN(clk.Now(), 4))
	before := remaining(t, l)
	l.Report(t.Context(), throttle.Claim{Cost: 4}, d, throttle.Feedback{State: throttle.Unused})
	require.Equal(t, before, remaining(t, l))
}

// If Cancel returned units while l has a reservation, canceling that reservation would return
// them again.
func TestLimiter_cancelWhileInDebt(t *testing.T) {
	clk := new(atomicClock)
	old := rate.NewLimiter(1, 5)
	l := throttle.WithClock(xtime.New(old, "old"), clk)
	d := reserve(t, l, throttle.Claim{Cost: 3})
	ahead := old.ReserveN(clk.Now(), 5) // 3 tokens below zero
	l.Report(t.Context(), throttle.Claim{Cost: 3}, d, throttle.Feedback{State: throttle.Unused})
	ahead.CancelAt(clk.Now())
	require.EqualValues(t, 2, remaining(t, l))
}

func TestLimiter_panicsOnNil(t *testing.T) {
	require.Panics(t, func() { xtime.New(nil, "") })
}

func newRate(limit rate.Limit, burst int) maker {
	return func(clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(xtime.New(rate.NewLimiter(limit, burst), "rate"), clk)
	}
}

// early returns the bound of a rate.Limiter, which grants units that are due within the next
// nanosecond.
func early(limit, burst float64) func(time.Duration) int64 {
	return func(w time.Duration) int64 { return int64(burst + limit*(w+1).Seconds() + 1e-9) }
}

type maker = func(throttle.Clock) throttle.Limiter

func newBucket(count int64, per time.Duration, burst int64) maker {
	return func(clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: count, Per: per, Burst: burst}), clk)
	}
}

func reserve(t *testing.T, l throttle.Limiter, c throttle.Claim) throttle.Decision {
	t.Helper()
	d, err := l.Reserve(t.Context(), c)
	require.NoError(t, err)
	return d
}

func remaining(t *testing.T, l throttle.Limiter) int64 {
	t.Helper()
	return reserve(t, l, throttle.Claim{DryRun: true}).Remaining
}

// An atomicClock shows the time that was last stored, in nanoseconds.
type atomicClock struct{ ns atomic.Int64 }

func (c *atomicClock) Now() time.Time { return time.Unix(0, c.ns.Load()) }
func (c *atomicClock) After(time.Duration) <-chan time.Time {
	panic("a limiter that decides does not wait")
}
