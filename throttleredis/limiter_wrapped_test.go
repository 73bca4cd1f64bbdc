package throttleredis

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/adaptive"
)

// Wrappers such as SoftLimit and Adaptive work with a limit in Redis as
// with a limit in memory.
func TestLimiter_canBeWrapped(t *testing.T) {
	s := newTestStore(t)
	limit := func(name string, n int64) *Limiter {
		return s.TokenBucket(throttle.Limit{Name: name, Count: n, Per: time.Hour})
	}
	soft := throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: limit("warn", 1), Hard: limit("stop", 2)})
	elastic := throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: limit("own", 1), CanBorrow: func(_ throttle.Claim, d throttle.Decision) bool { return d.Policy == "own" }})
	shadow := throttle.Shadow(limit("trial", 1), nil)
	for _, l := range []throttle.Limiter{soft, elastic, shadow} {
		first, second := take(t, l, "k"), take(t, l, "k")
		require.True(t, first.OK && !first.OverLimit, "%T: %+v", l, first)
		require.True(t, second.OK && second.OverLimit, "%T: %+v", l, second)
		l.Report(t.Context(), throttle.Claim{Key: "k"}, second, throttle.Feedback{State: throttle.Unused})
		l.Report(t.Context(), throttle.Claim{Key: "k"}, first, throttle.Feedback{State: throttle.Unused})
		again := take(t, l, "k")
		require.True(t, again.OK && !again.OverLimit, "%T: what was cancelled can be had again: %+v", l, again)
	}
	require.False(t, take(t, throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: limit("warn", 1), Hard: limit("none", 1)}), "x").OverLimit)
}

// An Adaptive slows down because of a server's rejections, and the limit in Redis holds as
// well.
func TestLimiter_besidesAnAdaptive(t *testing.T) {
	s := newTestStore(t)
	shared := s.TokenBucket(throttle.Limit{Name: "shared", Count: 3, Per: time.Hour})
	clk := &manualClock{now: began}
	own := throttle.WithClock(adaptive.New(adaptive.Config{InitialRate: 1000}), clk)
	both := throttle.AllOf(own, shared)
	for range 3 {
		d := take(t, both, "")
		for !d.OK {
			require.NotEqual(t, "shared", d.Policy)
			clk.now = clk.now.Add(d.Wait)
			d = take(t, both, "")
		}
		both.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{Outcome: throttle.Throttled})
	}
	require.Equal(t, int64(0), dryRun(t, shared).Remaining)
}

func dryRun(t *testing.T, l throttle.Limiter) throttle.Decision {
	d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
	require.NoError(t, err)
	return d
}
