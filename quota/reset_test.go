package quota

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// epochWindow serves limit per window and states the reset as Unix time in whole seconds, rounded up,
// by a clock that is ahead by skew. Its windows begin with the first request or, if aligned, at
// multiples of per.
func epochWindow(limit int, per, skew time.Duration, aligned bool) server {
	var end time.Time
	used := 0
	return func(now time.Time) (int, http.Header) {
		now = now.Add(skew)
		if !now.Before(end) {
			end, used = now.Add(per), 0
			if aligned {
				end = now.Truncate(per).Add(per)
			}
		}
		used++
		h := http.Header{}
		h.Set("Date", now.UTC().Format(http.TimeFormat))
		h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
		h.Set("X-RateLimit-Remaining", strconv.Itoa(max(limit-used, 0)))
		h.Set("X-RateLimit-Reset", strconv.FormatInt(end.Add(time.Second-1).Unix(), 10))
		if used <= limit {
			return 200, h
		}
		return 429, h
	}
}

// untilNow is about the time from the start of a bubble's clock to the present: a smaller number
// would not be parsed as Unix time.
const untilNow = 26 * 365 * 24 * time.Hour

// A reset that is stated in whole seconds of a wrong clock costs no more than an exact one. Where
// windows do not begin with the first request, one rejection shows that.
func TestTracker_refinesRoundedResets(t *testing.T) {
	for _, skew := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute, 10*time.Minute + 430*time.Millisecond} {
		for _, begin := range []time.Duration{0, 10 * time.Millisecond, 500 * time.Millisecond, 990 * time.Millisecond} {
			for _, aligned := range []bool{false, true} {
				if testing.Short() && (skew%time.Second == 0 && skew != 0 || begin == 500*time.Millisecond) {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(begin)
					s := epochWindow(100, 5*time.Second, untilNow+skew, aligned)
					tr, ideal := seeded(1), 10*time.Second
					for i := range 2 {
						j := play(t, tr, s, 300, 30, time.Millisecond)
						figures := fmt.Sprintf("%v off, begun at %v, aligned %v, job %d: %v", skew, begin, aligned, i+1, j)
						require.Zero(t, j.failed, figures)
						if aligned {
							require.LessOrEqual(t, j.throttled, 30, figures)
						} else {
							require.LessOrEqual(t, j.throttled, 30, figures)
							require.Less(t, float64(j.elapsed), 1.25*float64(ideal), figures)
						}
						time.Sleep(12*time.Second + begin)
					}
				})
			}
		}
	}
}
