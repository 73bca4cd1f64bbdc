package quota

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// Whether a reset without a unit counts seconds or milliseconds shows in two responses of one window (QUOTA section 6). What
// it has shown holds in later windows. Fails on 9d1ebde0: it needed three, and read seconds from the second window on.
func TestTracker_findsResetsInMilliseconds(t *testing.T) {
	type step struct {
		at    time.Duration
		reset int
		want  time.Duration // as the Tracker reads it
	}
	const ms, s = time.Millisecond, time.Second
	for name, steps := range map[string][]step{
		"milliseconds": {
			{0, 850, 850 * s}, {10 * ms, 840, 840 * ms}, {31 * ms, 820, 820 * ms}, {800 * ms, 50, 50 * ms}, {900 * ms, 950, 950 * ms},
		},
		"milliseconds of a distant server": { // receipts up to 30 ms late
			{0, 9000, 9000 * s}, {100*ms + 30*ms, 8900, 8900 * ms}, {200 * ms, 8800, 8800 * ms}, {300*ms + 20*ms, 8700, 8700 * ms},
		},
		"milliseconds, a burst": { // that arrived in the same millisecond
			{0, 900, 900 * s}, {10 * ms, 900, 900 * s}, {30 * ms, 900, 900 * s}, {40 * ms, 900, 900 * s}, {330 * ms, 600, 600 * ms},
		},
		"milliseconds, windows that begin with a request": {
			{0, 10000, 10000 * s}, {10 * ms, 9990, 9990 * ms}, {11 * s, 10000, 10000 * ms}, {22 * s, 10000, 10000 * ms}, {33 * s, 10000, 10000 * ms}, {44 * s, 10000, 10000 * ms},
		},
		"seconds":                    {{0, 850, 850 * s}, {10 * ms, 850, 850 * s}, {20 * ms, 850, 850 * s}, {30 * ms, 849, 849 * s}, {s, 849, 849 * s}, {2 * s, 848, 848 * s}},
		"seconds, rarely":            {{0, 3600, 3600 * s}, {60 * s, 3540, 3540 * s}, {120 * s, 3479, 3479 * s}, {180 * s, 3420, 3420 * s}},
		"a constant":                 {{0, 60, 60 * s}, {10 * ms, 60, 60 * s}, {s, 60, 60 * s}, {5 * s, 60, 60 * s}},
		"two limits in turn":         {{0, 850, 850 * s}, {10 * ms, 300, 300 * s}, {20 * ms, 849, 849 * s}, {30 * ms, 300, 300 * s}, {40 * ms, 849, 849 * s}},
		"seconds after a fall":       {{0, 850, 850 * s}, {10 * ms, 840, 840 * ms}, {40 * ms, 840, 840 * ms}, {1040 * ms, 839, 839 * ms}, {2100 * ms, 838, 838 * s}, {2110 * ms, 838, 838 * s}},
		"seconds of several windows": {{0, 9, 9 * s}, {6 * ms, 3, 3 * s}, {12 * ms, 8, 8 * s}, {20 * ms, 1, s}},
		"one response a window":      {{0, 900, 900 * s}, {s, 900, 900 * s}, {2 * s, 900, 900 * s}},
	} {
		start, tr := time.Unix(1_700_000_000, 0), &Tracker{}
		req := request(t, users)
		for i, step := range steps {
			resp := answer(200, "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "9", "X-RateLimit-Reset", strconv.Itoa(step.reset))
			f := tr.Feedback(req, throttle.Demand{}, resp, nil, start.Add(step.at), nil)
			require.Len(t, f.RemoteLimits, 1)
			require.Equal(t, step.want, f.RemoteLimits[0].ResetAfter, "%s %d", name, i)
		}
	}
}

// Of a host whose resets count seconds, no more responses are compared.
func TestTracker_keepsNoStateOfSeconds(t *testing.T) {
	start, tr := time.Unix(1_700_000_000, 0), &Tracker{}
	req := request(t, users)
	for i := range 5 {
		resp := answer(200, "RateLimit", `"a";r=5;t=`+strconv.Itoa(60-i), "RateLimit-Policy", `"a";q=10;w=60`)
		tr.Feedback(req, throttle.Demand{}, resp, nil, start.Add(time.Duration(i)*time.Second), nil)
	}
	require.Same(t, countsSeconds, tr.endpointOf(req).resetUnit.Load())
	other := request(t, "https://other.test/")
	tr.Feedback(other, throttle.Demand{}, answer(200, "X-RateLimit-Remaining", "5", "X-RateLimit-Reset", "1700000060"), nil, start, nil)
	require.Nil(t, tr.endpointOf(other).resetUnit.Load(), "an instant has a unit")
}

// A rejection of such a host that states only a reset is corrected, too.
func TestTracker_waitsForResetsInMilliseconds(t *testing.T) {
	start, tr := time.Unix(1_700_000_000, 0), &Tracker{}
	req := request(t, users)
	var report headers.Report
	for i := range 4 {
		resp := answer(429, "X-RateLimit-Reset", strconv.Itoa(850-10*i))
		f := (*linked)(tr).FeedbackReport(req, throttle.Demand{}, resp, nil, time.Time{}, start.Add(time.Duration(10*i)*time.Millisecond), nil, &report)
		require.Equal(t, report.Wait, f.RetryAfter)
	}
	require.Equal(t, 820*time.Millisecond, report.Wait)
}
