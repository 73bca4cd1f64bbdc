package concurrency

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/inflight"
)

// After a bare 429 that is not evidence, no claim is granted for one round trip. Then half of what was in
// flight may be, but at least four. Rejections within the round trip are of the same burst. Eight successes
// in a row end it.
func TestCut_boundsRequestsInFlight(t *testing.T) {
	now := time.Unix(1000, 0)
	const rtt = 20 * time.Millisecond
	for inFlight, want := range map[float64]int64{50: 25, 51: 25, 10: 5, 9: 4, 1: 4, 1 << 40: inflight.Max} {
		var c Cut
		c.Begin(inFlight, rtt, now)
		require.Equal(t, Cut{Until: now.Add(rtt), MaxInFlight: want}, c, inFlight)
	}
	var c Cut
	c.Begin(40, rtt, now)
	c.Succeeded()
	c.Begin(20, rtt, now.Add(rtt-1))
	require.Equal(t, Cut{Until: now.Add(rtt), MaxInFlight: 20}, c, "the same burst; the successes begin anew")
	c.Begin(19, rtt, now.Add(rtt))
	require.Equal(t, Cut{Until: now.Add(2 * rtt), MaxInFlight: 9}, c, "another burst")
	for range 7 {
		c.Succeeded()
		require.NotZero(t, c.MaxInFlight)
	}
	c.Succeeded()
	require.Equal(t, Cut{}, c)
}
