package debugpage

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

func TestSummary_ofTheLastMinute(t *testing.T) {
	bins := make([]bin, numBins)
	for i := range bins {
		bins[i] = bin{sent: 1, throttled: 2, waits: 3}
	}
	bins[len(bins)-31] = bin{sent: 1000, throttled: 1000, waits: 1000} // a minute and two seconds ago
	bins[len(bins)-30] = bin{sent: 10, throttled: 20, waits: 30}
	s := state{
		Quotas: []quotaTable{{Holds: 2}, {Holds: 1}},
		Queues: []queueTable{{Waiting: 2, longestWait: 3 * time.Second}, {Waiting: 5, longestWait: 1234567 * time.Microsecond}},
		Budgets: []budgetState{
			{}, {Allowed: pointer[int64](9), Retries: 2}, {Allowed: pointer[int64](8), Retries: 2}, {Allowed: pointer[int64](8), Retries: 2}, {Allowed: pointer[int64](7)},
		},
	}
	s.summarize(recording{inFlight: 4, bins: bins})
	require.Equal(t, summary{
		Waiting: 7, LongestWait: 3, longestWait: 3 * time.Second, InFlight: 4, Holds: 3, SentLastMinute: 39, ThrottledLastMin: 78, WaitedLastMinute: 117,
		RetriesLeft: pointer[int64](6),
	}, s.Summary)
	require.Equal(t, "3 s", s.Summary.LongestWaitText())
	require.Equal(t, "200", s.Summary.ThrottledPercent())
	require.Equal(t, "0", summary{ThrottledLastMin: 1}.ThrottledPercent())
	require.Equal(t, "33.3", summary{SentLastMinute: 3, ThrottledLastMin: 1}.ThrottledPercent())

	s = state{Budgets: []budgetState{{Allowed: pointer[int64](3), Retries: 5}}}
	s.summarize(recording{bins: []bin{{sent: 1}, {sent: 2}}})
	require.Equal(t, summary{SentLastMinute: 3, RetriesLeft: pointer[int64](0)}, s.Summary)
}

func TestBudgetState(t *testing.T) {
	for _, tt := range []struct {
		allowed       *int64
		retries       int64
		left, percent int64 // left -1: not limited
	}{
		{nil, 5, -1, 0},
		{pointer[int64](0), 0, 0, 0},
		{pointer[int64](-1), 0, 0, 0},
		{pointer[int64](1), 0, 1, 100},
		{pointer[int64](10), 0, 10, 100},
		{pointer[int64](10), 4, 6, 60},
		{pointer[int64](3), 1, 2, 66},
		{pointer[int64](10), 10, 0, 0},
		{pointer[int64](10), 11, 0, 0},
		{pointer[int64](10), -5, 15, 100},
	} {
		b := budgetState{Allowed: tt.allowed, Retries: tt.retries}
		if tt.left < 0 {
			require.Nil(t, b.Left())
		} else {
			require.Equal(t, tt.left, *b.Left(), "%+v", tt)
		}
		require.Equal(t, tt.percent, b.Percent(), "%+v", tt)
	}
}

func TestLimitRow(t *testing.T) {
	for _, tt := range []struct {
		row           limitRow
		title, window string
		percent       int64
		level         string
		bar           bool
	}{
		{limitRow{Unit: "requests"}, "requests", "requests", 0, "low", false},
		{limitRow{Name: "core", Unit: "requests", Size: 1}, "core", "1 requests", 0, "low", false},
		{limitRow{Unit: "tokens", Size: 5000, per: time.Hour}, "tokens", "5,000 tokens per 1 h", 0, "low", false},
		{limitRow{Unit: "u", per: time.Millisecond, Remaining: pointer[int64](1)}, "u", "u per 1 ms", 0, "low", false},
		{limitRow{Unit: "u", Size: 1, Remaining: pointer[int64](1)}, "u", "1 u", 100, "fine", true},
		{limitRow{Unit: "u", Size: 1000, Remaining: pointer[int64](999)}, "u", "1,000 u", 99, "fine", true},
		{limitRow{Unit: "u", Size: 100, Remaining: pointer[int64](20)}, "u", "100 u", 20, "fine", true},
		{limitRow{Unit: "u", Size: 100, Remaining: pointer[int64](19)}, "u", "100 u", 19, "low", true},
		{limitRow{Unit: "u", Size: 100, Remaining: pointer[int64](1)}, "u", "100 u", 1, "low", true},
		{limitRow{Unit: "u", Size: 100, Remaining: pointer[int64](0)}, "u", "100 u", 0, "empty", true},
		{limitRow{Unit: "u", Size: 100, Remaining: pointer[int64](-3)}, "u", "100 u", 0, "empty", true},
		{limitRow{Unit: "u", Size: 100, Remaining: pointer[int64](101)}, "u", "100 u", 100, "fine", true},
		{limitRow{Unit: "u", Size: -1, Remaining: pointer[int64](5)}, "u", "u", 0, "low", false},
	} {
		r := tt.row
		require.Equal(t, []any{tt.title, tt.window, tt.percent, tt.level, tt.bar}, []any{r.Title(), r.Window(), r.Percent(), r.Level(), r.HasBar()}, "%+v", tt)
	}
}

func TestQuotaRow(t *testing.T) {
	for _, tt := range []struct {
		row       quotaRow
		state     string
		unlimited bool
	}{
		{quotaRow{}, "ok", true},
		{quotaRow{Limits: []limitRow{{}}}, "ok", false},
		{quotaRow{Limits: []limitRow{{Remaining: pointer(int64(1))}}}, "ok", false},
		{quotaRow{Limits: []limitRow{{Remaining: pointer(int64(1))}, {Remaining: pointer(int64(0))}}}, "slow", false},
		{quotaRow{Rate: 1}, "ok", false},
		{quotaRow{Concurrency: 1}, "ok", false},
		{quotaRow{Concurrency: 1, InFlight: 1}, "slow", false},
		{quotaRow{Concurrency: 2, InFlight: 1}, "ok", false},
		{quotaRow{Concurrency: 2, InFlight: 3}, "slow", false},
		{quotaRow{InFlight: 3}, "ok", true},
		{quotaRow{Hold: &hold{endsIn: 1}}, "held", true},
		{quotaRow{Hold: &hold{}}, "probe", true},
		{quotaRow{Hold: &hold{endsIn: -1}}, "probe", true},
		{quotaRow{Hold: &hold{endsIn: 1, Probe: true}, Concurrency: 1, InFlight: 1}, "probe", false},
	} {
		require.Equal(t, tt.state, tt.row.State(), "%+v", tt.row)
		require.Equal(t, tt.unlimited, tt.row.Unlimited(), "%+v", tt.row)
	}
	for h, due := range map[hold]bool{{endsIn: 1}: false, {}: true, {endsIn: -1}: true, {Probe: true}: false} {
		require.Equal(t, due, h.Due(), "%+v", h)
	}
}

func TestNewQuotaRow(t *testing.T) {
	now := time.Unix(1000, 0).UTC()
	account := quota.AccountSnapshot{Host: "api.test", Account: "0f", LastUsed: now.Add(-1500 * time.Millisecond)}
	row := newQuotaRow(account, quota.QuotaSnapshot{
		Name: "api.test/search", InFlight: 2, Concurrency: 3, ConcurrencyReason: "slow start", Rate: 4.5,
		Hold: &quota.HoldSnapshot{Reason: "retry-after", Since: now.Add(-time.Second), Until: now.Add(2 * time.Second), Estimated: true, Probe: true},
		Limits: []quota.LimitSnapshot{
			{Name: "core", Unit: "requests", Size: 10, Remaining: 7, RemainingKnown: true, Per: time.Minute, Reset: now.Add(1500 * time.Millisecond)},
			{Unit: "tokens", Remaining: 7, Learned: true, Reset: now.Add(-time.Second)},
			{Declared: true, Learned: true},
		},
	}, now)
	require.Equal(t, quotaRow{
		Host: "api.test", Account: "0f", Name: "/search", InFlight: 2, Concurrency: 3, Reason: "slow start", Rate: 4.5, LastUsed: pointer(1.5),
		Hold: &hold{Reason: "retry-after", Known: learned, Since: now.Add(-time.Second), Until: now.Add(2 * time.Second), EndsIn: 2, Probe: true, endsIn: 2 * time.Second},
		Limits: []limitRow{
			{Name: "core", Unit: "requests", Size: 10, Remaining: pointer[int64](7), Per: 60, ResetIn: pointer(1.5), Known: stated, per: time.Minute, resetIn: 1500 * time.Millisecond},
			{Unit: "tokens", Known: learned, ResetIn: pointer(0.)},
			{Known: declared},
		},
	}, row)
	require.Equal(t, "1.5 s", row.Limits[0].ResetText())
	require.Equal(t, "2 s", row.Hold.HeldFor())
	row = newQuotaRow(quota.AccountSnapshot{Host: "api.test", LastUsed: now.Add(time.Hour)}, quota.QuotaSnapshot{Name: "api.test"}, now)
	require.Equal(t, quotaRow{Host: "api.test", LastUsed: pointer(0.), Limits: []limitRow{}}, row)
	require.Equal(t, []string{"stated limits only", "disabled", "stated limits and estimates"},
		[]string{modeName(0), modeName(quota.Disabled), modeName(quota.Full)})
}

func TestNewQueueTable(t *testing.T) {
	limits := []queue.LimitSnapshot{
		{Name: "own", Waiting: 2, Blocked: 1, Tenants: 1, LongestWait: time.Second, GrantAfter: 3 * time.Second},
		{Name: "own", Waiting: 3, Blocked: 2, Tenants: 4, LongestWait: 2 * time.Second, GrantAfter: time.Second},
		{Name: "own", LongestWait: 500 * time.Millisecond, GrantAfter: 2 * time.Second},
		{Name: "api.test: retry-after", Waiting: 1, ServerImposed: true},
		{Name: "api.test: learned rate", ServerImposed: true, Estimated: true, GrantAfter: -1},
		{Name: "api.test: quota of tokens"},
		{Waiting: 9},
		{Blocked: 1, Waiting: 1, GrantAfter: time.Nanosecond},
	}
	table := newQueueTable("a, b", queue.Snapshot{
		Waiting: 7, Granted: 1, Rejected: 2, Failed: 3, Closed: true, OmittedLimits: 4, Limits: limits,
		Classes: []queue.ClassSnapshot{{HeadWaited: 1500 * time.Millisecond}, {HeadWaited: time.Hour}},
	}, filter{})
	require.Equal(t, queueTable{
		Transports: "a, b", Waiting: 7, LongestWait: 1.5, longestWait: 1500 * time.Millisecond, Granted: 1, Rejected: 2, Failed: 3, Closed: true, Omitted: 4,
		Limits: []queueRow{
			{Name: "own", Known: own, Keys: 3, Waiting: 5, Blocked: 3, Tenants: 5, LongestWait: 2, longestWait: 2 * time.Second, NextIn: pointer(1.), nextIn: time.Second},
			{Name: "api.test: retry-after", Known: stated, Keys: 1, Waiting: 1},
			{Name: "api.test: learned rate", Known: learned, Keys: 1},
			{Name: "api.test: quota of tokens", Known: learned, Keys: 1},
			{Known: own, Keys: 1, Blocked: 1, Waiting: 1, NextIn: pointer(0.), nextIn: time.Nanosecond},
		},
	}, table)
	require.Equal(t, []string{"1.5 s", "2 s", "1 s"}, []string{table.LongestWaitText(), table.Limits[0].LongestWaitText(), table.Limits[0].NextText()})

	limits = nil
	for i := range maxQueueRows + 5 {
		limits = append(limits, queue.LimitSnapshot{Name: strconv.Itoa(i)}, queue.LimitSnapshot{Name: "0"})
	}
	table = newQueueTable("", queue.Snapshot{OmittedLimits: 1, Limits: limits}, filter{})
	require.Len(t, table.Limits, 100)
	require.Equal(t, 6, table.Omitted)
	require.Equal(t, maxQueueRows+6, table.Limits[0].Keys)
	require.Zero(t, table.LongestWait)
}

func TestGroupBy_namesAreBounded(t *testing.T) {
	var all []transport
	for i := range 500 {
		all = append(all, transport{name: fmt.Sprint("transport ", i%10)})
	}
	groups := groupBy(all, func(transport) int { return 0 })
	require.Len(t, groups, 1)
	require.Len(t, groups[0].names, 310) // the name that exceeds 300 bytes is the last
}

func TestChart_values(t *testing.T) {
	got := charts([]bin{{sent: 3, throttled: 1, longestWait: 1234567 * time.Microsecond}, {sent: 1}})
	require.Equal(t, []chart{
		{Name: "Sent", Unit: "requests per second", BinWidth: 2, Values: []float64{1.5, .5}},
		{Name: "Throttled", Unit: "responses per second", BinWidth: 2, Values: []float64{.5, 0}},
		{Name: "Waited", Unit: "seconds, longest wait that ended", BinWidth: 2, Values: []float64{1.235, 0}},
	}, got)
	require.Equal(t, "throttled", got[1].Class())
	for v, want := range map[float64]string{0.5: "0.5", 1: "1", 1.1: "2", 2: "2", 2.1: "5", 5: "5", 5.1: "10", 99: "100", 101: "200", 0.3: "0.5"} {
		require.Equal(t, want, chart{Values: []float64{0, v}}.Top(), v)
	}
	for v, want := range map[float64]string{0: "0", 99.94: "99.9", 99.99: "100", 100: "100", 100.5: "101", -100: "-100", 1234.4: "1,234", 0.00012: "0.00012"} {
		require.Equal(t, want, decimal(v), v)
	}
	for d, want := range map[time.Duration]float64{0: 0, time.Second: 1, 1499 * time.Microsecond: .001, 1500 * time.Microsecond: .002, -time.Second: -1} {
		require.InDelta(t, want, seconds(d), 1e-12, d)
	}
	for n, want := range map[any]int64{3: 3, int64(4): 4, uint64(5): 5, "6": 0} {
		require.Equal(t, want, toInt64(n))
	}
	require.EqualValues(t, 7, toInt64(pointer[int64](7)))
	for s, want := range map[string]string{
		strings.Repeat("x", 300): strings.Repeat("x", 300),
		strings.Repeat("x", 301): strings.Repeat("x", 300) + "…",
	} {
		require.Equal(t, want, clip(s))
	}
}

func TestQuality(t *testing.T) {
	for params, want := range map[string]float64{"": 1, "q=0": 0, "q=1": 1, "q=0.5": .5, " Q=0.25 ": .25, "q=1.1": 0, "q=-1": 0, "q=NaN": 0, "q=": 0, "v=1;q=0.3": .3, "v=1": 1} {
		require.InDelta(t, want, quality(strings.Split(params, ";")), 0, params)
	}
}

// TestRecorder_boundaries checks the shortest wait that is listed, the time and the number of
// entries within which decisions are joined, and the length of the list.
func TestRecorder_boundaries(t *testing.T) {
	start := time.Unix(1000, 0)
	req := &http.Request{URL: &url.URL{Host: "api.test"}}
	counts := func(r *recorder) (all []int) {
		for _, d := range r.copy(start).decisions {
			all = append(all, d.Count)
		}
		return all
	}
	wait := func(r *recorder, after time.Duration, limit string, waited time.Duration) {
		r.waitDone(start.Add(after), req, heed.WaitInfo{Limit: limit, Waited: waited})
	}
	r := new(recorder)
	wait(r, 0, "a", 100*time.Millisecond-1)
	require.Empty(t, r.decisions)
	wait(r, 0, "a", 100*time.Millisecond)
	wait(r, 10*time.Second, "a", time.Second)
	require.Equal(t, []int{2}, counts(r))
	wait(r, 20*time.Second+1, "a", time.Second)
	require.Equal(t, []int{1, 2}, counts(r))

	for others, want := range map[int]int{9: 10, 10: 11, 99: 100, 100: 100} { // entries: all are compared, so that an outage of many hosts is one line for each
		r := new(recorder)
		wait(r, 0, "a", time.Second)
		for i := range others {
			wait(r, 0, fmt.Sprint("b", i), time.Second)
		}
		wait(r, 0, "a", time.Second)
		require.Len(t, r.decisions, want)
	}

	r = new(recorder)
	for i := range 103 {
		wait(r, 0, fmt.Sprint("c", i), time.Second)
	}
	decisions := r.copy(start).decisions
	require.Len(t, decisions, 100)
	require.Equal(t, "waited 1 s for limit c102", decisions[0].Text)
	require.Equal(t, "waited 1 s for limit c3", decisions[99].Text)

	r = new(recorder)
	held := quota.HoldInfo{Host: "api.test", Limit: "l", Held: true, For: time.Second}
	for _, after := range []time.Duration{0, 100*time.Millisecond - 1, 100 * time.Millisecond} {
		r.hold(start.Add(after), held)
	}
	require.Equal(t, []int{2}, counts(r))
	held.Held = false
	r.hold(start, held)
	require.Equal(t, []int{1, 2}, counts(r))
	require.Equal(t, kindRelease, r.copy(start).decisions[0].Kind)
}

// TestRecorder_kinds checks each kind of decision, and that the text is that of the longest time.
func TestRecorder_kinds(t *testing.T) {
	now := time.Unix(1000, 0)
	req := &http.Request{Method: "PUT", URL: &url.URL{Host: "api.test"}}
	r := new(recorder)
	require.True(t, r.copy(now).empty)
	r.retry(now, req, heed.RetryInfo{AttemptInfo: heed.AttemptInfo{Status: 503}, Delay: time.Second})
	r.retry(now, req, heed.RetryInfo{AttemptInfo: heed.AttemptInfo{Status: 503}, Delay: 3 * time.Second})
	r.retry(now, req, heed.RetryInfo{AttemptInfo: heed.AttemptInfo{Status: 503}, Delay: 2 * time.Second})
	r.retry(now, req, heed.RetryInfo{AttemptInfo: heed.AttemptInfo{Status: 502}, Delay: 2 * time.Second})
	r.done(now, req, heed.DoneInfo{Info: heed.Info{Attempts: 1, StopReason: heed.ErrMaxAttempts}})
	r.done(now, req, heed.DoneInfo{Info: heed.Info{Attempts: 1, StopReason: heed.ErrMaxAttempts}})
	r.done(now, req, heed.DoneInfo{Info: heed.Info{Attempts: 1, StopReason: heed.ErrMaxWait}})
	var got []string
	for _, d := range r.copy(now).decisions {
		require.Equal(t, []string{"PUT", "api.test"}, []string{d.Method, d.Host})
		got = append(got, fmt.Sprint(d.Kind, " ", d.Count))
		if d.Kind == kindRetry && d.Count == 3 {
			require.Contains(t, d.Text, "3 s")
			require.Equal(t, 3*time.Second, d.longest)
		}
	}
	require.Equal(t, []string{"give up 1", "give up 2", "retry 1", "retry 3"}, got)
	method, host := describe(new(http.Request))
	require.Equal(t, []string{"GET", ""}, []string{method, host})
	r.attemptStart(now)
	require.False(t, r.copy(now).empty)
	r.attemptDone(now, heed.AttemptInfo{Outcome: throttle.Throttled})
	require.Zero(t, r.copy(now).inFlight)
}

func pointer[T any](v T) *T { return &v }
