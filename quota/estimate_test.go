package quota

import (
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// describedInRejections serves 20 requests per 10 s and states that in rejections only. Its windows
// begin with the first request or, if aligned, at multiples of ten seconds.
func describedInRejections(aligned bool) server {
	const limit, per = 20, 10 * time.Second
	var end time.Time
	used := 0
	return func(now time.Time) (int, http.Header) {
		if !now.Before(end) {
			end, used = now.Add(per), 0
			if aligned {
				end = now.Truncate(per).Add(per)
			}
		}
		if used++; used <= limit {
			return 200, nil
		}
		left := strconv.Itoa(int((end.Sub(now) + time.Second - 1) / time.Second))
		return 429, http.Header{"Ratelimit-Limit": {"20"}, "Ratelimit-Remaining": {"0"}, "Ratelimit-Reset": {left}}
	}
}

// A limit that only rejections describe is counted: in jobs with pauses between them, a few requests
// are rejected, and no window is waited for longer than it lasts.
func TestTracker_countsWindowsThatRejectionsDescribe(t *testing.T) {
	for name, tt := range map[string]struct {
		aligned  bool
		idle     time.Duration // after each of 12 jobs of 50 requests
		rejected int
		elapsed  time.Duration // without idle time
	}{
		"one after another":          {false, 0, 13, 295 * time.Second},
		"one after another, aligned": {true, 0, 13, 295 * time.Second},
		"pauses":                     {false, 13 * time.Second, 15, 245 * time.Second},
		"pauses, aligned":            {true, 13 * time.Second, 13, 215 * time.Second},
		"long pauses":                {false, 47300 * time.Millisecond, 15, 245 * time.Second},
		"long pauses, aligned":       {true, 47300 * time.Millisecond, 13, 165 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr, s := seeded(1), describedInRejections(tt.aligned)
			rejected, elapsed := 0, time.Duration(0)
			for range 12 {
				j := play(t, tr, s, 50, 10, 20*time.Millisecond)
				require.Zero(t, j.failed, name)
				rejected, elapsed = rejected+j.throttled, elapsed+j.elapsed
				time.Sleep(tt.idle)
			}
			goal(t, "windows that rejections describe", rejected <= tt.rejected, "%s: %d rejected", name, rejected)
			goal(t, "windows that rejections describe", elapsed <= tt.elapsed, "%s: %v", name, elapsed)
		})
	}
}
