package quota

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Requests that wait for the end of a hold are not sent together: they are sent at a growing rate, within a tenth of the
// time that the hold lasted, whether or not the host was known to be without a limit before.
func TestTracker_releasesRequestsAfterAHold(t *testing.T) {
	const (
		far  = 40 * time.Millisecond
		held = 20 * time.Second
	)
	for name, before := range map[string]int{"known host": 200, "new host": 1} { // requests that were accepted before
		synctest.Test(t, func(t *testing.T) {
			tr, start := seeded(1), time.Now()
			d := driver{t, tr}
			for range before {
				require.True(t, d.send("/", 200), name)
				time.Sleep(time.Millisecond)
			}
			for d.send("/", 429, "Retry-After", "20") {
				require.Less(t, time.Since(start), time.Second)
			}
			stopped := time.Now()
			s := func(now time.Time) (int, http.Header) {
				if now.Sub(stopped) < held {
					return 429, http.Header{"Retry-After": {strconv.Itoa(int((held - now.Sub(stopped) + time.Second - 1) / time.Second))}}
				}
				return 200, nil
			}
			j := play(t, tr, s, 1000, 1000, far)
			require.Zero(t, j.failed, name)
			require.LessOrEqual(t, j.throttled, 8, "%s: tests", name)
			first := 0
			for _, at := range j.arrivals {
				if at >= held && at < held+held/10/2 {
					first++
				}
			}
			require.Less(t, first, 300, "%s: in the first half of the time, with a late start", name)
			require.Less(t, j.elapsed, held+held/10+time.Second, name)
		})
	}
}
