package monitor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

func TestRegistry_measuresEveryAlgorithm(t *testing.T) {
	for name, spec := range specs {
		stats := (&Registry{}).Stats(&rules.Limit{ID: name, Spec: spec})
		require.NotPanics(t, func() { stats.Decided(throttle.Claim{}, throttle.Decision{}) }, name)
		if name != "concurrency" {
			require.NoError(t, stats.Limit.Validate(), name)
			require.EqualValues(t, 10, stats.Limit.Count, name)
		}
	}
}

// TestRegistry_skipsUnmeasurableLimits checks that a valid Spec that is not a valid throttle.Limit
// does not cause a panic.
func TestRegistry_skipsUnmeasurableLimits(t *testing.T) {
	slow := throttle.NginxConfig{Rate: 1, Per: 1e12, Burst: 1e12}
	require.NoError(t, slow.Validate())
	require.Zero(t, nominalLimit(slow))
	require.Zero(t, nominalLimit(nil))
}

// TestRegistry_alertMayUseTheRegistry checks that Alert is called without a lock, so that its Alert
// can report the Stats of the limit.
func TestRegistry_alertMayUseTheRegistry(t *testing.T) {
	var rejected []int64
	g := &Registry{}
	g.Alert = func(l *rules.Limit) *Alert {
		require.True(t, g.mu.TryLock(), "a call of Stats would block")
		g.mu.Unlock()
		stats := g.Stats(l)
		return &Alert{Threshold: throttle.PerMinute(2), OnIncident: func(Incident) { rejected = append(rejected, stats.Snapshot().Rejected) }}
	}
	l := &rules.Limit{ID: "api/user", Spec: throttle.PerMinute(60)}
	for range 5 {
		g.Decided(l, throttle.Claim{Key: "ann"}, throttle.Decision{At: time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC)})
	}
	require.Equal(t, []int64{3}, rejected)
}

// TestRegistry_keepsFewLimits checks that a file that is read often does not fill memory, and that
// the Sets in use find their limits without a lock.
func TestRegistry_keepsFewLimits(t *testing.T) {
	g := &Registry{}
	numLimits := func() (n int) {
		g.byLimit.Range(func(any, any) bool { n++; return true })
		return n
	}
	for range 100 {
		l := &rules.Limit{ID: "api/user", Spec: throttle.PerMinute(60)}
		first := g.Stats(l)
		require.Same(t, first, g.Stats(l))
		require.LessOrEqual(t, numLimits(), maxLimitsPerEntry)
	}
	var sets [maxLimitsPerEntry]*rules.Limit
	for i := range sets {
		sets[i] = &rules.Limit{ID: "api/user", Spec: throttle.PerMinute(60)}
		g.Stats(sets[i])
	}
	for _, l := range sets {
		_, ok := g.byLimit.Load(l)
		require.True(t, ok)
	}
	set, err := rules.Parse([]byte("domain: api\ndescriptors: [{key: user, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: token_bucket}}]"), rules.Config{})
	require.NoError(t, err)
	before := g.Stats(set.All()[0])
	g.Retain(set)
	require.Zero(t, numLimits())
	require.Same(t, before, g.Stats(set.All()[0]))
	require.Equal(t, 1, numLimits())
}

// specs has a Spec for each algorithm, with a count of 10.
var specs = map[string]rules.Spec{
	"token_bucket":    throttle.Limit{Count: 10, Per: time.Minute, Burst: 5},
	"refill":          throttle.RefillBucketConfig{Limit: throttle.Limit{Count: 10, Per: time.Minute, Burst: 5}},
	"leaky_bucket":    throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 10, Per: time.Minute, Burst: 5}, Queue: 3},
	"fixed_window":    throttle.FixedWindowConfig{Count: 10, Per: time.Minute},
	"calendar":        throttle.FixedWindowConfig{Count: 10, Align: throttle.EachDay, Zone: time.UTC},
	"sliding_log":     throttle.SlidingLogConfig{Limit: throttle.Limit{Count: 10, Per: time.Minute}, MinGap: time.Second},
	"sliding_counter": throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 10, Per: time.Minute}},
	"sub_windows":     throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 10, Per: time.Minute}, Parts: 6},
	"nginx":           throttle.NginxConfig{Rate: 10, Per: time.Second, Burst: 5, Delay: 2},
	"concurrency":     throttle.ConcurrencyConfig{Count: 10, MaxAge: time.Minute},
	"warm_up":         warmup.Config{Limit: throttle.Limit{Count: 10, Per: time.Minute}, Period: time.Minute, ColdFactor: 2, Outage: time.Hour},
}
