package quota

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Slow start costs time once, and only for concurrent calls: it ends when a host has served fifty.
func TestTracker_costOfSlowStart(t *testing.T) {
	const far = 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		var tr Tracker
		unlimited := func(time.Time) (int, http.Header) { return 200, nil }
		j := play(t, &tr, unlimited, 50, 50, far)
		require.LessOrEqual(t, j.elapsed, 600*time.Millisecond, "%v", j)
		for range 3 {
			j = play(t, &tr, unlimited, 50, 50, far)
			require.Equal(t, far, j.elapsed, "nothing is added afterwards")
		}
	})
}

// statingServers state what is left in each response.
var statingServers = map[string]func() server{
	"bucket of 20/s with a large burst": func() server { return tokenBucket(20, 100, true) },
	"bucket of 10/s with a larger one":  func() server { return tokenBucket(10, 200, true) },
	"window of 100 per 5 s":             func() server { return fixedWindow(100, 5*time.Second, true, true) },
	"window of 10 per 1 s":              func() server { return fixedWindow(10, time.Second, true, true) },
	"window of 1000 per 1 min":          func() server { return fixedWindow(1000, time.Minute, true, true) },
	"token bucket of 30/s, burst 30":    func() server { return tokenBucket(30, 30, true) },
	"token bucket of 50/s, burst 10":    func() server { return tokenBucket(50, 10, true) },
	"GCRA of 25/s, burst 5":             func() server { return tokenBucket(25, 5, true) },
}

// After the first response, few requests are rejected: tests, and what follows the first request after a reset.
func TestTracker_isHardlyRejectedOnceLimitsAreStated(t *testing.T) {
	for name, s := range statingServers {
		for _, far := range []time.Duration{time.Millisecond, 30 * time.Millisecond, 150 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				j := play(t, seeded(1), s(), 300, 30, far)
				t.Logf("%s, %v away: %v", name, far, j)
				goal(t, "limits that are stated", j.throttled <= 30 && j.failed == 0, "%s, %v away: %v", name, far, j)
			})
		}
	}
}

// epochs serves s with resets as times of a clock that is off by off, and with Date if dated.
func epochs(s server, off time.Duration, dated bool) server {
	return func(now time.Time) (int, http.Header) {
		status, h := s(now)
		clock := now.Add(off)
		if reset, err := strconv.Atoi(h.Get("RateLimit-Reset")); err == nil {
			h.Set("RateLimit-Reset", strconv.FormatInt(clock.Add(time.Duration(reset)*time.Second+time.Second-1).Unix(), 10))
		}
		if dated {
			h.Set("Date", clock.UTC().Format(http.TimeFormat))
		}
		if h.Get("Retry-After") != "" {
			h.Set("Retry-After", h.Get("RateLimit-Reset"))
		}
		return status, h
	}
}

// A server whose clock is ten minutes fast or slow is used as well as one with a correct clock.
func TestTracker_toleratesWrongServerClocks(t *testing.T) {
	for _, off := range []time.Duration{0, 10 * time.Minute, -10 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(20 * 365 * 24 * time.Hour) // from 2000 on: seconds since 1970 have ten digits
			j := play(t, seeded(1), epochs(fixedWindow(100, 5*time.Second, true, true), off, true), 300, 30, 20*time.Millisecond)
			t.Logf("%v off: %v", off, j)
			require.LessOrEqual(t, j.throttled, 8, "tests")
			require.Zero(t, j.failed)
			require.LessOrEqual(t, j.elapsed, 12500*time.Millisecond, "ideal: 10 s")
		})
	}
}

// The server halves the quota in the middle of a window. Requests in flight may be rejected, but no
// request that is sent after the first response that states it.
func TestTracker_obeysAHalvedQuotaWithinOneRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const far = 40 * time.Millisecond
		start, used := time.Now(), 0
		window := start
		var halved time.Time
		late := 0
		j := play(t, seeded(1), func(now time.Time) (int, http.Header) {
			if now.Sub(window) >= 10*time.Second {
				window, used = now, 0
			}
			used++
			limit := 100
			if !halved.IsZero() || used > 60 {
				limit = 50
			}
			if limit == 50 && halved.IsZero() {
				halved = now
			}
			h := http.Header{}
			h.Set("X-RateLimit-Limit", strconv.Itoa(limit))
			h.Set("X-RateLimit-Remaining", strconv.Itoa(max(limit-used, 0)))
			h.Set("X-RateLimit-Reset", strconv.Itoa(int((window.Add(10*time.Second).Sub(now)+time.Second-1)/time.Second)))
			if used <= limit {
				return 200, h
			}
			if now.Sub(halved) > far {
				late++
			}
			return 429, h
		}, 300, 30, far)
		t.Log(j)
		goal(t, "halved quota", late == 0, "%d sent after the server had stated it", late)
		require.Zero(t, j.failed)
		require.LessOrEqual(t, j.throttled-late, 30, "all that was in flight")
	})
}
