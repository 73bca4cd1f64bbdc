package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A Tracker stores latencies by host and route.
func TestTracker_latencyOfARoute(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	tr := new(Tracker)
	require.Equal(t, [2]time.Duration{}, latencyOf(t, tr, users, now))
	(*linked)(tr).ObserveLatency(request(t, users), 4*time.Microsecond, now)
	(*linked)(tr).ObserveExpired(request(t, users), 8*time.Microsecond, 16*time.Microsecond, now)
	require.Equal(t, [2]time.Duration{4 * time.Microsecond, 12 * time.Microsecond}, latencyOf(t, tr, "https://api.test/users/18", now))
	require.Equal(t, [2]time.Duration{4 * time.Microsecond, 12 * time.Microsecond}, latencyOf(t, tr, search, now), "another route, of which only the host is known")
	require.Zero(t, latencyOf(t, tr, "https://other.test/users/17", now), "another host")
}

func latencyOf(t *testing.T, tr *Tracker, url string, now time.Time) [2]time.Duration {
	typical, high := (*linked)(tr).Latency(request(t, url), now)
	return [2]time.Duration{typical, high}
}
