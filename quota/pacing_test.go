package quota

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Another client that takes half of the quota, as fast as it likes, is never
// refused because of us, whoever is first and however many of us there are.
func TestTracker_leavesItsShareToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := seeded(1)
		tr.Headroom = 0.5
		var start time.Time
		used, theirs, refused := 0, 0, 0
		take := func(now time.Time) bool {
			if now.Sub(start) >= 5*time.Second {
				start, used, theirs = now, 0, 0
			}
			used++
			return used <= 100
		}
		s := func(now time.Time) (int, http.Header) {
			ok := take(now)
			for ; theirs < 50 && theirs < used; theirs++ { // the other one keeps up with us
				if !take(now) {
					refused++
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
		require.Zero(t, refused)
		require.Zero(t, j.throttled)
		require.Zero(t, j.failed)
	})
}

// The last tenth of an hourly quota lasts for the hour.
func TestTracker_spreadsWhatIsLeft(t *testing.T) {
	for _, tt := range []struct {
		pace  Pacing
		half  int // sent in the first half of the hour, at least and at most
		most  int
		burst time.Duration
	}{
		{Burst, 100, 100, time.Minute},
		{Auto, 93, 97, 30 * time.Minute},
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
			require.GreaterOrEqual(t, n, tt.half, "%v: %v", tt.pace, j)
			require.LessOrEqual(t, n, tt.most, "%v: %v", tt.pace, j)
			require.Zero(t, j.throttled)
		})
	}
}
