package quota

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// With a headroom of one half, another client that uses half of the quota, at any speed, is never
// rejected.
func TestTracker_leavesHeadroomToOtherClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := seeded(1)
		tr.Headroom = 0.5
		var start time.Time
		used, theirs, rejected := 0, 0, 0
		take := func(now time.Time) bool {
			if now.Sub(start) >= 5*time.Second {
				start, used, theirs = now, 0, 0
			}
			used++
			return used <= 100
		}
		s := func(now time.Time) (int, http.Header) {
			ok := take(now)
			for ; theirs < 50 && theirs < used; theirs++ { // the other client uses as much
				if !take(now) {
					rejected++
				}
			}
			h := http.Header{}
			h.Set("RateLimit-Limit", "100")
			h.Set("RateLimit-Remaining", strconv.Itoa(max(100-used, 0)))
			h.Set("RateLimit-Reset", strconv.Itoa(int(start.Add(5*time.Second).Sub(now).Seconds()+1)))
			if ok {
				return 200, h
			}
			return 429, h
		}
		j := play(t, tr, s, 200, 30, 20*time.Millisecond)
		require.Zero(t, rejected)
		require.Zero(t, j.throttled)
		require.Zero(t, j.failed)
	})
}

// What is left of an hourly quota is spent immediately, unless it is spread over the hour.
func TestTracker_spreadsRemainingUnits(t *testing.T) {
	for _, tt := range []struct {
		pace  Pacing
		min   int // requests sent in the first half of the hour
		max   int
		burst time.Duration
	}{
		{Auto, 100, 100, time.Minute},
		{Spread, 48, 55, 30 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr := seeded(1)
			tr.Pacing = tt.pace
			start := time.Now()
			j := playUntil(t, tr, fixedWindow(100, time.Hour, true, true), 100, 4, 20*time.Millisecond, start.Add(59*time.Minute))
			n := 0
			for _, a := range j.arrivals {
				if a < 30*time.Minute {
					n++
				}
			}
			require.GreaterOrEqual(t, n, tt.min, "%v: %v", tt.pace, j)
			require.LessOrEqual(t, n, tt.max, "%v: %v", tt.pace, j)
			require.Zero(t, j.throttled)
		})
	}
}
