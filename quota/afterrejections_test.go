package quota

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A driver sends single requests of a Tracker, without a queue.
type driver struct {
	t  *testing.T
	tr *Tracker
}

// send sends a request now, if it is admitted, and reports the response.
func (d driver) send(path string, status int, header ...string) (sent bool) {
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, "http://api.test"+path, nil)
	require.NoError(d.t, err)
	demand := d.tr.Demand(req)
	if demand.Limiter == nil {
		d.tr.Feedback(req, demand, answer(status, header...), nil, time.Now(), nil)
		return true
	}
	dec, err := demand.Limiter.Reserve(d.t.Context(), throttle.Claim{Now: time.Now()})
	require.NoError(d.t, err)
	if !dec.OK {
		return false
	}
	f := d.tr.Feedback(req, demand, answer(status, header...), nil, time.Now(), nil)
	demand.Limiter.Report(d.t.Context(), throttle.Claim{Now: time.Now()}, dec, f)
	return true
}

// waitUntilSent returns how long it takes until a request is admitted.
func (d driver) waitUntilSent(path string, maxWait time.Duration) time.Duration {
	start := time.Now()
	for !d.send(path, 200) && time.Since(start) < maxWait {
		time.Sleep(100 * time.Millisecond)
	}
	return time.Since(start)
}

// A time without requests does not count as part of an earlier hold.
func TestTracker_holdsNoLongerAfterAnIdleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := driver{t, seeded(1)}
		stop := func() {
			for range 20 {
				d.send("/", 429)
				time.Sleep(300 * time.Millisecond)
			}
		}
		for range 30 {
			require.True(t, d.send("/", 200))
		}
		stop()
		time.Sleep(10 * time.Hour)
		for range 60 {
			d.send("/", 200)
			time.Sleep(time.Second)
		}
		stop()
		require.Less(t, d.waitUntilSent("/", 3*time.Hour), 3*time.Minute)
	})
}

// One rejection does not hold a declared limit of a day for hours.
func TestTracker_declaredLimitIsTestedSoonAfterARejection(t *testing.T) {
	for name, header := range map[string][]string{"bare": nil, "Retry-After": {"Retry-After", "1"}} {
		synctest.Test(t, func(t *testing.T) {
			d := driver{t, seeded(1)}
			require.NoError(t, d.tr.Declare("api.test", throttle.Limit{Count: 10000, Per: 24 * time.Hour}))
			for range 5 {
				require.True(t, d.send("/", 200))
			}
			d.send("/", 429, header...)
			require.Less(t, d.waitUntilSent("/", 24*time.Hour), 10*time.Second, name)
		})
	}
}

// A declared limit survives rejections, and a hold does not reset its count.
func TestTracker_declaredLimitSurvivesRejections(t *testing.T) {
	for name, tt := range map[string]struct {
		first  int
		header []string
	}{
		"first response is a bare 429": {0, nil},
		"hold within the window":       {99, []string{"Retry-After", "1"}},
		"early rejection, bare":        {20, nil},
		"early rejection, Retry-After": {20, []string{"Retry-After", "1"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := driver{t, seeded(1)}
			require.NoError(t, d.tr.Declare("api.test", throttle.PerHour(100)))
			sent := 0
			for range tt.first {
				if d.send("/", 200) {
					sent++
				}
			}
			d.send("/", 429, tt.header...)
			for start := time.Now(); time.Since(start) < 50*time.Minute; time.Sleep(time.Second) {
				if d.send("/", 200) {
					sent++
				}
			}
			require.LessOrEqual(t, sent, 102, name)
			require.GreaterOrEqual(t, sent, 90, name)
		})
	}
}

// With a declared limit, an outage does not leave a learned rate without an end.
func TestTracker_recoversFromFailuresWithADeclaredLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := driver{t, seeded(1)}
		require.NoError(t, d.tr.Declare("api.test", throttle.PerMinute(60000)))
		for range 50 {
			d.send("/", 200)
			time.Sleep(10 * time.Millisecond)
		}
		for range 30 {
			d.send("/", 503)
			time.Sleep(10 * time.Millisecond)
		}
		for range 3000 {
			d.send("/", 200)
			time.Sleep(10 * time.Millisecond)
		}
		sent := 0
		for range 1000 {
			if d.send("/", 200) {
				sent++
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, 1000, sent)
	})
}

// A limit that only rejections state is still counted after hours without a rejection.
func TestTracker_countsAfterHoursWithoutRejections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limited := fixedWindow(20, 10*time.Second, false, false)
		start := time.Now()
		s := func(now time.Time) (int, http.Header) {
			status, h := limited(now)
			if status == 429 {
				h.Set("RateLimit-Limit", "20")
				h.Set("RateLimit-Remaining", "0")
				h.Set("RateLimit-Reset", strconv.Itoa(10-int(now.Sub(start).Seconds())%10))
			}
			return status, h
		}
		tr := seeded(1)
		play(t, tr, s, 60, 10, 20*time.Millisecond)
		for range 40 {
			time.Sleep(5 * time.Minute)
			j := play(t, tr, s, 16, 16, 20*time.Millisecond)
			require.Less(t, j.elapsed, time.Second, "after %v: %v", time.Since(start), j)
		}
	})
}
