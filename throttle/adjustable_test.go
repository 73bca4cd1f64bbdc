package throttle_test

import (
	"testing"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// An Adjustable whose SetLimit returns an error is as it was before, and a valid limit applies to the next claim. Units
// that were taken stay taken.
func TestAdjustable_setLimit(t *testing.T) {
	ten := throttle.Limit{Name: "ten", Count: 10, Per: time.Hour}
	now := time.Unix(1_000_000_800, 0) // the beginning of an hour
	for name, tt := range map[string]struct {
		l         throttle.Adjustable
		next      throttle.Limit
		remaining int64            // of next, after 4 units were taken of 10
		rejects   []throttle.Limit // besides those that all reject
	}{
		"token bucket":    {throttle.NewTokenBucket(ten), throttle.PerHour(20), 6, nil},
		"refill bucket":   {throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: ten}), throttle.PerHour(20), 6, nil},
		"leaky bucket":    {throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: ten, Queue: 2}), throttle.PerHour(20), 6, nil},
		"fixed window":    {throttle.NewFixedWindow(throttle.FixedWindowConfig{Name: "ten", Count: 10, Per: time.Hour}), throttle.PerHour(20), 16, []throttle.Limit{{Count: 5, Per: time.Hour, Burst: 4}, {Count: 5}}},
		"each day":        {throttle.NewFixedWindow(throttle.FixedWindowConfig{Name: "ten", Count: 10, Align: throttle.EachDay}), throttle.Limit{Count: 20}, 16, nil},
		"sliding log":     {throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: ten}), throttle.PerHour(20), 16, []throttle.Limit{{Count: 5, Per: time.Hour, Burst: 4}}},
		"sliding counter": {throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: ten}), throttle.PerHour(20), 16, []throttle.Limit{{Count: 5, Per: time.Hour, Burst: 4}}},
		"sub-windows":     {throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: ten, Parts: 4}), throttle.PerHour(20), 16, []throttle.Limit{{Count: 5, Per: time.Hour, Burst: 4}}},
		"concurrency":     {throttle.NewConcurrency(throttle.ConcurrencyConfig{Name: "ten", Count: 10}), throttle.Limit{Count: 20}, 16, []throttle.Limit{throttle.PerHour(5), {Count: 5, Burst: 4}}},
		"warm-up":         {warmup.New(warmup.Config{Limit: ten, Period: time.Hour}), throttle.PerHour(20), 0, nil},
		"bursty":          {warmup.NewBursty(warmup.BurstyConfig{Limit: ten}), throttle.PerHour(20), 0, nil},
	} {
		clk := clock.NewMock()
		clk.Set(now)
		throttle.WithClock(tt.l, clk)
		dry := func() throttle.Decision {
			d, err := tt.l.Reserve(t.Context(), throttle.Claim{DryRun: true})
			require.NoError(t, err, name)
			return d
		}
		_, err := tt.l.Reserve(t.Context(), throttle.Claim{Cost: 4})
		require.NoError(t, err, name)
		before := dry()
		require.Equal(t, "ten", before.Policy, name)
		for _, bad := range append(tt.rejects, throttle.Limit{}, throttle.Limit{Count: -1, Per: time.Hour}, throttle.Limit{Count: 0, Per: time.Hour}, throttle.Limit{Count: 5, Per: time.Hour, Burst: -1}) {
			require.Error(t, tt.l.SetLimit(bad), "%s: %+v", name, bad)
			require.Equal(t, before, dry(), "%s: %+v changes nothing", name, bad)
		}
		require.NoError(t, tt.l.SetLimit(tt.next), name)
		after := dry()
		require.NotEqual(t, "ten", after.Policy, name)
		require.Equal(t, tt.remaining, after.Remaining, name)
	}
}
