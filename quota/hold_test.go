package quota

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Requests that wait for the end of a hold are not sent in one round trip, although the host was
// known to be without a limit before: it may reject all of them.
func TestTracker_sendsFewRequestsAfterAHold(t *testing.T) {
	const (
		far     = 40 * time.Millisecond
		bounded = 5 // round trips of the first 100 responses
	)
	for name, tt := range map[string]struct {
		before int // requests that were accepted before
		most   int // requests in one round trip
	}{
		"known host": {200, 18},
		"new host":   {1, 18},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := seeded(1)
			d := driver{t, tr}
			for range tt.before {
				require.True(t, d.send("/", 200), name)
				time.Sleep(time.Millisecond)
			}
			d.send("/", 429, "Retry-After", "2")
			j := play(t, tr, func(time.Time) (int, http.Header) { return 200, nil }, 1000, 1000, far)
			require.Zero(t, j.failed, name)
			probe := slices.Min(j.arrivals)
			require.GreaterOrEqual(t, probe, 2*time.Second, name)
			trips := map[time.Duration]int{}
			for _, at := range j.arrivals {
				trips[(at-probe)/far]++
			}
			require.Equal(t, 1, trips[0], "%s: the probe", name)
			for i := range time.Duration(bounded) {
				require.LessOrEqual(t, trips[i+1], tt.most, "%s, round trip %d: %v", name, i+1, trips)
			}
			require.Less(t, j.elapsed, 4*time.Second, "%s: the bound is doubled then: %v", name, trips)
		})
	}
}
