package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A Tracker stores latencies by host and route.
func TestTracker_latencyOfARoute(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var tr Tracker
	require.Zero(t, tr.Latency(request(t, users), now))
	tr.ObserveLatency(request(t, users), time.Millisecond, now)
	require.Equal(t, time.Millisecond, tr.Latency(request(t, "https://api.test/users/18"), now))
	require.Zero(t, tr.Latency(request(t, search), now), "another route")
	require.Zero(t, tr.Latency(request(t, "https://other.test/users/17"), now), "another host")
}
