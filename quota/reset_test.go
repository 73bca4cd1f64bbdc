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
				synctest.Test(t, func(t *testing.T) {
					time.Sleep(begin)
					s := epochWindow(100, 5*time.Second, untilNow+skew, aligned)
					tr, ideal := seeded(1), 10*time.Second
					for i := range 2 {
						j := play(t, tr, s, 300, 30, time.Millisecond)
						figures := fmt.Sprintf("%v off, begun at %v, aligned %v, job %d: %v", skew, begin, aligned, i+1, j)
						require.Zero(t, j.failed, figures)
						if aligned {
							require.LessOrEqual(t, j.throttled, 1, figures)
						} else {
							require.Zero(t, j.throttled, figures)
							require.Less(t, float64(j.elapsed), 1.05*float64(ideal), figures)
						}
						time.Sleep(12*time.Second + begin)
					}
				})
			}
		}
	}
}

func TestClockOffset_learnsWhereSecondsBegin(t *testing.T) {
	var c clockOffset
	at := func(second, milli int) (date, now time.Time) {
		return time.Unix(int64(1000+second), 0), time.Unix(int64(second), int64(milli)*1e6)
	}
	for _, step := range []struct {
		date, milli int
		want        time.Duration
	}{
		{7, 700, 0}, // the first one: nothing is known
		{7, 900, 200 * time.Millisecond},
		{8, 300, 0}, // a later one
		{8, 900, 600 * time.Millisecond},
		{9, 100, 0},
		{5, 100, 0}, // both clocks were set back
		{5, 150, 50 * time.Millisecond},
	} {
		date, now := at(step.date, step.milli)
		require.Equal(t, step.want, c.roundedOff(date, now), "%+v", step)
	}
	date, now := at(5, 150)
	require.Zero(t, c.roundedOff(date.Add(-2*time.Second), now), "the server's clock was set back")
	require.Equal(t, 100*time.Millisecond, c.roundedOff(date.Add(-2*time.Second), now.Add(100*time.Millisecond)))
}
