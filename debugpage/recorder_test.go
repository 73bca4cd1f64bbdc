package debugpage

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

func TestRecorder_countsByTime(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	for name, tt := range map[string]struct {
		sent []float64 // seconds since start
		now  float64
		want map[int]int // number sent, by bin from the latest
	}{
		"none":                      {nil, 0, map[int]int{}},
		"the present bin":           {[]float64{0, 1}, 1, map[int]int{}},
		"ended":                     {[]float64{0, 1, 2, 3.9}, 4, map[int]int{1: 2, 0: 2}},
		"with a gap":                {[]float64{0, 100}, 104, map[int]int{51: 1, 1: 1}},
		"the oldest":                {[]float64{0}, 300, map[int]int{149: 1}},
		"too old":                   {[]float64{0}, 302, map[int]int{}},
		"one round":                 {[]float64{0, 302}, 304, map[int]int{0: 1}},
		"clock steps back":          {[]float64{10, 0}, 12, map[int]int{5: 1, 0: 1}},
		"clock steps back a round":  {[]float64{302, 0}, 304, map[int]int{0: 1}},
		"before 1970 and in 1970":   {[]float64{-1_000_001, -1_000_000}, -1_000_000 + 2, map[int]int{0: 2}},
		"before 1970 and long gaps": {[]float64{-2_000_000, 1e9}, 1e9 + 2, map[int]int{0: 1}},
	} {
		r := new(recorder)
		for _, s := range tt.sent {
			r.attemptStart(at(s))
		}
		got := map[int]int{}
		bins := r.copy(at(tt.now)).bins
		require.Len(t, bins, numBins)
		for i, b := range bins {
			if b.sent > 0 {
				got[numBins-1-i] = b.sent
			}
		}
		require.Equal(t, tt.want, got, name)
	}
}

func TestRecorder_countsOutcomesAndWaits(t *testing.T) {
	r, now := new(recorder), time.Unix(1000, 0)
	req := &http.Request{URL: &url.URL{Host: "api.test"}}
	r.attemptDone(now, heed.AttemptInfo{Outcome: throttle.Throttled})
	require.Zero(t, r.copy(now).inFlight, "an attempt that began before Trace was joined")
	r.attemptStart(now)
	r.attemptStart(now)
	r.attemptDone(now, heed.AttemptInfo{Outcome: throttle.Accepted})
	r.waitDone(now, req, heed.WaitInfo{})
	r.waitDone(now, req, heed.WaitInfo{Waited: 2 * time.Second})
	r.waitDone(now, req, heed.WaitInfo{Waited: time.Nanosecond})
	c := r.copy(now.Add(binWidth))
	require.Equal(t, 1, c.inFlight)
	b := c.bins[numBins-1]
	require.Equal(t, []int{2, 1, 2}, []int{b.sent, b.throttled, b.waits})
	require.Equal(t, 2*time.Second, b.longestWait)
	require.Len(t, c.decisions, 1, "short waits are not listed")
}

func TestRecorder_joinsSimilarDecisions(t *testing.T) {
	r, start := new(recorder), time.Unix(1000, 0)
	req := &http.Request{URL: &url.URL{Host: "api.test"}}
	wait := func(after time.Duration, limit string, waited time.Duration) {
		r.waitDone(start.Add(after), req, heed.WaitInfo{Limit: limit, Waited: waited})
	}
	wait(0, "a", time.Second)
	wait(time.Second, "b", time.Second)
	wait(2*time.Second, "a", 3*time.Second)
	wait(3*time.Second, "a", 2*time.Second)
	wait(30*time.Second, "a", time.Second)
	var got []decision
	for _, d := range r.copy(start).decisions {
		d.similar, d.longest = "", 0
		got = append(got, d)
	}
	require.Equal(t, []decision{
		{At: start.Add(30 * time.Second), Kind: kindWait, Method: "GET", Host: "api.test", Text: "waited 1 s for limit a", Count: 1},
		{At: start.Add(3 * time.Second), Kind: kindWait, Method: "GET", Host: "api.test", Text: "waited 3 s for limit a", Count: 3},
		{At: start.Add(time.Second), Kind: kindWait, Method: "GET", Host: "api.test", Text: "waited 1 s for limit b", Count: 1},
	}, got)
}

func TestRecorder_allocatesNothingWithoutWaits(t *testing.T) {
	trace := new(Page).Trace()
	req := &http.Request{URL: &url.URL{Host: "api.test"}}
	require.Zero(t, testing.AllocsPerRun(100, func() {
		trace.WaitDone(req, heed.WaitInfo{Attempt: 1})
		trace.AttemptStart(req, heed.AttemptInfo{Attempt: 1})
		trace.AttemptDone(req, heed.AttemptInfo{Attempt: 1, Status: 200})
	}))
}

// TestRecorder_sharedTrackersReportEventsOnce checks that an event that each of several
// Transports reports is counted once.
func TestRecorder_sharedTrackersReportEventsOnce(t *testing.T) {
	r, now := new(recorder), time.Unix(1000, 0)
	held := quota.HoldInfo{Host: "api.test", Limit: "api.test: retry-after", Held: true, For: time.Second}
	limit := quota.LimitLearnedInfo{Host: "api.test", Limit: "api.test: quota", Size: 10}
	for range 3 {
		r.hold(now, held)
	}
	for range 2 {
		r.limitLearned(now, limit)
	}
	r.hold(now.Add(time.Second), held)
	var got []string
	for _, d := range r.copy(now).decisions {
		got = append(got, fmt.Sprint(d.Text, " ", d.Count))
	}
	require.Equal(t, []string{"quota api.test (retry-after) is held for 1 s 2", "quota api.test: stated limit of 10 1"}, got)
}

func TestChart_pathAndScale(t *testing.T) {
	for _, tt := range []struct {
		values      []float64
		top         string
		line        string
		latest, max string
	}{
		{[]float64{0, 0}, "1", "M0 100H600", "0", "0"},
		{[]float64{0, 3, 3, 1.5}, "5", "M0 100H150V40H450V70H600", "1.5", "3"},
		{[]float64{10}, "10", "M0 0H600", "10", "10"},
		{[]float64{1234.5}, "2,000", "M0 38.3H600", "1,235", "1,235"},
		{[]float64{0.0123}, "0.02", "M0 38.5H600", "0.0123", "0.0123"},
	} {
		c := chart{Values: tt.values}
		require.Equal(t, []string{tt.top, tt.line, tt.latest, tt.max}, []string{c.Top(), c.Line(), c.Latest(), c.Max()})
		require.Equal(t, tt.line+"V100H0Z", c.Area())
	}
}

func TestText_numbersAndNames(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", -999: "-999", 1234567: "1,234,567"} {
		require.Equal(t, want, number(n))
	}
	for s, want := range map[string]string{
		"a\nb\x7f\u202ec": "a\uFFFDb\uFFFD\uFFFDc",
		"\xff":            "\uFFFD",
		"ü":               "ü",
	} {
		require.Equal(t, want, clean(s))
	}
	long := ""
	for range 200 {
		long += "ü"
	}
	require.Equal(t, long[:maxText]+"…", clean(long))
}
