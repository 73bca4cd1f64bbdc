package monitor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/rules/monitor"
	"github.com/heed-go/heed/throttle"
)

func TestCounts_shares(t *testing.T) {
	n := monitor.Counts{Allowed: 6, Rejected: 2, Shadowed: 1, Returned: 3, Abandoned: 1}
	require.InDelta(t, 3./8, n.RejectedShare(), 1e-12)
	require.InDelta(t, 3./4, n.ReturnedShare(), 1e-12)
	require.Zero(t, monitor.Counts{}.RejectedShare())
	require.InDelta(t, 1., monitor.Counts{Rejected: 1}.RejectedShare(), 1e-12)
	require.InDelta(t, .5, monitor.Counts{Rejected: 1, Allowed: 1}.RejectedShare(), 1e-12)
	require.Zero(t, monitor.Counts{}.ReturnedShare())
	require.InDelta(t, 1., monitor.Counts{Returned: 5}.ReturnedShare(), 1e-12)
	require.Zero(t, monitor.Counts{Abandoned: 5}.ReturnedShare())
}

// TestStats_countsShadowedGrantsAsRejected checks that a claim that only shadow mode grants counts
// as rejected: its key is in TopRejected, and it begins a streak. A grant beyond a soft limit does
// neither.
func TestStats_countsShadowedGrantsAsRejected(t *testing.T) {
	for shadow, want := range map[bool]int64{true: 1, false: 0} {
		stats := &monitor.Stats{Limit: throttle.PerMinute(1), Shadow: shadow}
		decide := func(key string, at time.Duration, over bool) {
			stats.Decided(throttle.Claim{Key: key}, throttle.Decision{OK: true, OverLimit: over, At: noon.Add(at)})
		}
		decide("ann", 0, false)
		decide("ann", time.Second, true)
		decide("ann", time.Minute, false)
		decide("bob", time.Minute, false)
		n := stats.Snapshot()
		require.Equal(t, want, n.Returned)
		require.Equal(t, want, n.Demand.Sessions)
		hits := stats.TopRejectedCleartext(5)
		require.Len(t, hits, int(want))
		for _, h := range hits {
			require.Equal(t, "ann", h.Key)
			require.EqualValues(t, 1, h.Count)
		}
	}
}
