package rules

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// TestParse_reportsAFaultOnce checks that one fault causes one error.
func TestParse_reportsAFaultOnce(t *testing.T) {
	for _, text := range []string{
		matching("[GET /a]"),
		matching("{method: get, path: /a}"),
		matching("{host: 'a:80', path: /a}"),
		matching("{path: a//b}"),
		matching("/a//b//c"),
		matching("{header: [X-A, b]}"),
		matching("{header: {X-A: [b]}}"),
		"domain: d\nvalues: [user, other]",
		"domain: d\nvalues: {user: {header: [a]}}",
		"domain: d\nlimits: [{name: a, key: [[b]], rate_limit: {unlimited: true}}]",
		"domain: d\nlimits: [{name: a, key: user, rate_limit: {unlimited: true}}]",
		limitWith("unit: minute, requests_per_unit: 1, align: [first]"),
		limitWith("unit: [minute], requests_per_unit: 1"),
		limitWith("per: [1s], requests_per_unit: 1"),
		limitWith("unit: minute, requests_per_unit: [1]"),
		limitWith("requests_per_unit: 1, calendar: [day]"),
		limitWith("requests_per_unit: 1, calendar: day, zone: [UTC]"),
		limitWith("unit: minute, requests_per_unit: 1, active: {from: [1], requests_per_unit: 2}"),
		limitWith("unit: minute, requests_per_unit: 1, active: {from: 09:00, days: {a: b}, requests_per_unit: 2}"),
		limitWith("unit: minute, requests_per_unit: 1, soft: [10%]"),
		limitWith("unit: minute, requests_per_unit: 1, cost: [1]"),
		limitWith("unit: minute, requests_per_unit: 1, burst: [1]"),
		limitWith("unit: minute, requests_per_unit: 1, replaces: x"),
		limitWith("unit: minute, requests_per_unit: 1, ban: x"),
		limitWith("unit: minute, requests_per_unit: 1, compact: [true]"),
		limitWith("unlimited: true, requests_per_unit: 1"),
		limitWith("unit: minute, requests_per_unit: 100, soft: 1%, warm_up: {period: 1s}"),
	} {
		_, err := Parse([]byte(text), Config{})
		var faults interface{ Unwrap() []error }
		if errors.As(err, &faults) {
			require.Len(t, faults.Unwrap(), 1, "%s\n%v", text, err)
		} else {
			require.Error(t, err, text)
		}
	}
}

func TestParse_boundsOfOne(t *testing.T) {
	two := "domain: d\nlimits: [{name: a, rate_limit: {unlimited: true}}, {name: b, rate_limit: {unlimited: true}}]"
	_, err := Parse([]byte(two), Config{MaxLimits: 1})
	require.Error(t, err)
	_, err = Parse([]byte(two), Config{MaxLimits: 2, MaxBytes: int64(len(two))})
	require.NoError(t, err)
	_, err = Parse([]byte(two), Config{MaxBytes: 1})
	require.ErrorContains(t, err, "more than 1 bytes")
	_, err = Parse([]byte(two), Config{MaxLimits: -1, MaxBytes: -1})
	require.NoError(t, err)
}

func TestParseDuration_daysAndWeeks(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0d": 0, "0w": 0, "1d": day, "2w": 14 * day, "106751d": 106751 * day, "15250w": 15250 * 7 * day, "90s": 90 * time.Second,
	} {
		got, err := parseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		if got >= day {
			again, err := parseDuration(formatDuration(got))
			require.NoError(t, err)
			require.Equal(t, got, again, text)
		}
	}
	for _, text := range []string{"-1d", "-1w", "106752d", "15251w", "d", "1.5d", "99999999999999999999d"} {
		_, err := parseDuration(text)
		require.Error(t, err, text)
	}
	for d, want := range map[time.Duration]string{
		day: "1d", 2 * day: "2d", 36 * time.Hour: "36h", 25*time.Hour + time.Minute: "25h1m", 10 * time.Minute: "10m", 10 * time.Second: "10s", 0: "0s", 90 * time.Second: "1m30s",
	} {
		require.Equal(t, want, formatDuration(d))
	}
}

// TestSet_stringStatesSmallAndLargeNumbers checks the text of amounts that the golden files do not
// contain.
func TestSet_stringStatesSmallAndLargeNumbers(t *testing.T) {
	const ten = "unit: minute, requests_per_unit: 10, "
	for words, want := range map[string]string{
		"concurrency: 25":                                                         "concurrency 25 at a time",
		"unit: minute, requests_per_unit: 12":                                     "fixed_window 12 per 1m from the epoch",
		"requests_per_unit: 31, calendar: month":                                  "fixed_window 31 each month in UTC",
		"unit: minute, requests_per_unit: 1, granularity: 1m":                     "sub_windows 1 per 1m, by 1m",
		ten + "burst: 1":                                                          "token_bucket 10 per 1m, burst 1",
		ten + "algorithm: nginx, burst: 2, delay: 1":                              "nginx 10 per 1m, burst 2, delay 1",
		ten + "algorithm: nginx, burst: 1":                                        "nginx 10 per 1m, burst 1",
		ten + "cost: 2":                                                           "fixed_window 10 per 1m from the epoch; costs 2",
		ten + "ban: {refusals: 1, within: 1s, duration: 1s, max_keys: 1}":         "fixed_window 10 per 1m from the epoch; ban of 1s after 1 refusals in 1s, of 1 keys",
		"unit: second, requests_per_unit: 10, burst: 10, algorithm: token_bucket": "token_bucket 10 per 1s",
		"unit: second, requests_per_unit: 3, algorithm: leaky_bucket, queue: 1":   "leaky_bucket 3 per 1s, queue 1",
	} {
		if want != "" {
			got := outcomeOf(words)
			require.True(t, got == want || strings.HasPrefix(got, want+";"), "%s\n%s\n%s", words, want, got)
		}
	}
}

// TestSet_stringAlignsIDs checks the columns of a file with a long and a short ID.
func TestSet_stringAlignsIDs(t *testing.T) {
	for length, wide := range map[int]int{5: 7, 58: 60, 59: 60, 70: 60} {
		text := "domain: d\nlimits:\n- {name: a, rate_limit: {unlimited: true}}\n- {name: " + strings.Repeat("n", length) + ", rate_limit: {unlimited: true}}\n"
		set, err := Parse([]byte(text), Config{})
		require.NoError(t, err)
		line := strings.Split(set.String(), "\n")[1]
		require.Equal(t, "3:25  d:a", strings.Fields(line)[0]+"  "+strings.Fields(line)[1])
		require.Equal(t, len("3:25  ")+wide+2, strings.Index(line, "unlimited"), "%d: %s", length, line)
	}
}

// TestMatch_stringIsSorted checks that the order of headers in a file does not matter.
func TestMatch_stringIsSorted(t *testing.T) {
	for _, m := range []string{"{header: {X-A: 1, X-B: 2, X-C: 3}}", "{header: {X-C: 3, x-b: 2, X-A: 1}}"} {
		set, err := Parse([]byte(matching(m)), Config{})
		require.NoError(t, err)
		require.Contains(t, set.String(), "matches / X-A=1 X-B=2 X-C=3;")
	}
}

func TestRouter_keyOfAPathThatIsOnlyATail(t *testing.T) {
	set, err := Parse([]byte("domain: d\nlimits: [{name: a, match: '/{rest...}', key: '{rest}', rate_limit: {unit: hour, requests_per_unit: 1}}]"), Config{})
	require.NoError(t, err)
	require.Equal(t, []string{"a, x/y"}, matchedLimits(set, httptest.NewRequest(http.MethodGet, "/x/y", nil)))
}

func TestPeriod_containsItsBoundaries(t *testing.T) {
	at := func(h, m, s, ns int) time.Time { return time.Date(2026, 11, 20, h, m, s, ns, time.UTC) } // a Friday
	for _, tt := range []struct {
		from, to time.Duration
		days     Weekdays
		at       time.Time
		want     bool
	}{
		{9 * time.Hour, 17 * time.Hour, EveryDay, at(9, 0, 0, 0), true},
		{9 * time.Hour, 17 * time.Hour, EveryDay, at(9, 0, 0, 1), true},
		{9 * time.Hour, 17 * time.Hour, EveryDay, at(8, 59, 59, 999999999), false},
		{9 * time.Hour, 17 * time.Hour, EveryDay, at(16, 59, 59, 999999999), true},
		{9 * time.Hour, 17 * time.Hour, EveryDay, at(17, 0, 0, 0), false},
		{9 * time.Hour, 17 * time.Hour, EveryDay, at(17, 0, 0, 1), false},
		{9*time.Hour + 30*time.Second, 17 * time.Hour, EveryDay, at(9, 0, 29, 0), false},
		{9*time.Hour + 30*time.Second, 17 * time.Hour, EveryDay, at(9, 0, 30, 0), true},
		{9 * time.Hour, 9 * time.Hour, 1 << time.Friday, at(8, 59, 0, 0), false}, // ends on Saturday
		{9 * time.Hour, 9 * time.Hour, 1 << time.Friday, at(9, 0, 0, 0), true},
		{9 * time.Hour, 9 * time.Hour, 1 << time.Thursday, at(8, 59, 0, 0), true},
		{9 * time.Hour, 9 * time.Hour, 1 << time.Thursday, at(9, 0, 0, 0), false},
		{0, 0, 1 << time.Friday, at(0, 0, 0, 0), true},
	} {
		p := Period{From: tt.from, To: tt.to, Days: tt.days}
		require.Equal(t, tt.want, p.contains(tt.at), "%v at %v", p, tt.at)
	}
}

// TestSet_addsALimitOnce adds descriptors in another order than that of the file, and twice.
func TestSet_addsALimitOnce(t *testing.T) {
	set, err := Parse([]byte("domain: d\ndescriptors: [{key: a, rate_limit: {unit: hour, requests_per_unit: 1}}, {key: b, rate_limit: {unit: hour, requests_per_unit: 2}}, {key: c, rate_limit: {unit: hour, requests_per_unit: 3}}]"), Config{})
	require.NoError(t, err)
	a, b, c := Descriptor{{Key: "a", Value: "1"}}, Descriptor{{Key: "b", Value: "1"}}, Descriptor{{Key: "c", Value: "1"}}
	for _, ds := range [][]Descriptor{{a, b, c}, {c, b, a}, {b, a, b, c, b}, {c, a, b, a, c, c}, {a, c, b, c}} {
		var ticket queue.Ticket
		require.NoError(t, set.Add(&ticket, ds...))
		for i, r := range set.rules {
			require.Same(t, r.limiter, ticket.Demands[i].Limiter)
		}
		require.Nil(t, ticket.Demands[3].Limiter)
	}
}

// TestSet_limitsWithoutAMatchNeedNoFreeDemand checks that a request without limits passes a full
// ticket.
func TestSet_limitsWithoutAMatchNeedNoFreeDemand(t *testing.T) {
	set, err := Parse([]byte("domain: d\nlimits: [{name: a, match: /a, rate_limit: {unit: hour, requests_per_unit: 1}}]"), Config{})
	require.NoError(t, err)
	var full queue.Ticket
	for range queue.MaxDemands {
		full.Add(throttle.Demand{Limiter: throttle.AllowAll})
	}
	require.NoError(t, set.Limits(httptest.NewRequest(http.MethodGet, "/b", nil), &full))
	require.ErrorIs(t, set.Limits(httptest.NewRequest(http.MethodGet, "/a", nil), &full), errFullTicket)
}

// TestSet_readsAValueOncePerRequest counts calls of a function of Config.Values that three limits
// use.
func TestSet_readsAValueOncePerRequest(t *testing.T) {
	calls := 0
	c := Config{Values: map[string]func(*http.Request) (string, bool){"user": func(*http.Request) (string, bool) { calls++; return "u", true }}}
	text := "domain: d\nlimits:"
	for i := range 3 {
		text += fmt.Sprintf("\n- {name: n%d, key: user, rate_limit: {unit: hour, requests_per_unit: 1}}", i)
	}
	set, err := Parse([]byte(text), c)
	require.NoError(t, err)
	for i := range 2 {
		var ticket queue.Ticket
		require.NoError(t, set.Limits(httptest.NewRequest(http.MethodGet, "/", nil), &ticket))
		require.Equal(t, i+1, calls)
	}
}

func TestResizable_nothingAndUnchangeable(t *testing.T) {
	bucket, nginx, places := throttle.PerSecond(1), throttle.NginxConfig{Rate: 1, Per: time.Second}, throttle.ConcurrencyConfig{Count: 1}
	for _, tt := range []struct {
		a, b Spec
		want bool
	}{
		{nil, nil, true}, {nil, bucket, false}, {bucket, nil, false}, {nil, nginx, false}, {nginx, nil, false},
		{nginx, nginx, false}, {places, places, false}, {bucket, throttle.PerMinute(7), true}, {nginx, bucket, false},
	} {
		require.Equal(t, tt.want, resizable(tt.a, tt.b), "%v, %v", tt.a, tt.b)
	}
}

// TestKeyLimiter_clockRunsAfterAChange checks that claims without a time see the clock after the
// limit has changed.
func TestKeyLimiter_clockRunsAfterAChange(t *testing.T) {
	clk := &movingClock{friday}
	s := Config{Clock: clk}
	set, err := Parse([]byte(limitWith("unit: minute, requests_per_unit: 10, algorithm: sliding_log")), s)
	require.NoError(t, err)
	claim := func(want bool) {
		t.Helper()
		d, err := set.rules[0].limiter.Reserve(t.Context(), throttle.Claim{Key: "x", Cost: 5})
		require.NoError(t, err)
		require.Equal(t, want, d.OK)
	}
	claim(true)
	clk.now = clk.now.Add(time.Second)
	set = reload(t, set, limitWith("unit: minute, requests_per_unit: 5, algorithm: sliding_log"), s)
	claim(false)
	clk.now = clk.now.Add(time.Minute)
	claim(true)
	claim(false)
}

// TestActiveLimit_longPauseEndsWithTheCurrentPeriod checks a key after many missed changes.
func TestActiveLimit_longPauseEndsWithTheCurrentPeriod(t *testing.T) {
	for _, days := range []int{1, 14, 17, 40, 400} {
		g := activeLimitOf(t, "rate_limit: {unit: minute, requests_per_unit: 10, algorithm: sliding_log, active: {from: 09:00, to: 17:00, requests_per_unit: 100}}")
		require.EqualValues(t, 9, reserveAt(t, g, 1, "08:00:00").Remaining)
		for _, at := range []struct {
			hour int
			want int64
		}{{10, 99}, {18, 9}} {
			d, err := g.Reserve(t.Context(), throttle.Claim{Key: "k", Now: friday.Add(time.Duration(24*days+at.hour) * time.Hour)})
			require.NoError(t, err)
			require.Equal(t, at.want, d.Remaining, "%d days, %d hours", days, at.hour)
		}
	}
}

// TestActiveLimit_retiredAsksItsSuccessor checks the optional methods of a limit that has been
// removed from its file.
func TestActiveLimit_retiredAsksItsSuccessor(t *testing.T) {
	const plain, banned = "value: b, rate_limit: {unit: hour, requests_per_unit: 1}", "value: b, rate_limit: {unit: hour, requests_per_unit: 1, ban: {refusals: 1, within: 1s, duration: 1s}}"
	for _, tt := range []struct {
		words     string
		successor *activeLimit
		want      bool
	}{
		{plain, nil, false}, {banned, nil, false}, {banned, activeLimitOf(t, plain), false}, {plain, activeLimitOf(t, banned), true},
	} {
		g := activeLimitOf(t, tt.words)
		require.Equal(t, tt.words == banned, throttle.CountsRefusals(g))
		require.True(t, throttle.IsNonBlocking(g))
		g.retire(tt.successor)
		require.Equal(t, tt.want, throttle.CountsRefusals(g), tt.words)
		require.True(t, throttle.IsNonBlocking(g))
		d, err := g.Reserve(t.Context(), throttle.Claim{Now: friday})
		require.NoError(t, err)
		require.True(t, d.OK)
	}
}

func TestIsRemoteAddress(t *testing.T) {
	for value, want := range map[string]bool{
		"192.0.2.1": true, "2001:db8::/64": true,
		"": false, "x": false, "2001:db8::1": false, "2001:db8::/48": false, "2001:db8::/65": false, "2001:db8::1/64": false, "192.0.2.0/24": false, "::1": false,
	} {
		require.Equal(t, want, isRemoteAddress(value), value)
	}
}

// TestLint_comparesWithCare lints pairs of limits that the golden file does not contain.
func TestLint_comparesWithCare(t *testing.T) {
	limit := func(name, words string) string {
		return "- {name: " + name + ", match: /a, rate_limit: {" + words + "}}\n"
	}
	const ten = "unit: minute, requests_per_unit: 10"
	for _, tt := range []struct {
		name, limits string
		want         int // number of findings with one of the texts
	}{
		{"one of three identical limits", limit("a", ten) + limit("b", ten) + limit("c", ten), 2},
		{"different cost", limit("a", ten+", cost: 1") + limit("b", ten+", cost: 2"), 1}, // b admits 5 requests
		{"nothing passes a blocked limit", limit("a", "unit: minute, requests_per_unit: 0") + limit("b", ten), 1},
		{"unlimited", limit("a", "unlimited: true") + limit("b", ten), 0},
		{"aligned windows", limit("a", "unit: minute, requests_per_unit: 1") + limit("b", "unit: hour, requests_per_unit: 60"), 1},
		{"aligned windows, one more", limit("a", "unit: minute, requests_per_unit: 1") + limit("b", "unit: hour, requests_per_unit: 59"), 0},
		{"aligned windows, longer", limit("a", "unit: hour, requests_per_unit: 10") + limit("b", ten), 1},
		{"windows that do not align", limit("a", "per: 40s, requests_per_unit: 10") + limit("b", "per: 60s, requests_per_unit: 29"), 0},
		{"windows that do not align, all", limit("a", "per: 40s, requests_per_unit: 10") + limit("b", "per: 60s, requests_per_unit: 30"), 1},
		{"log in a window", limit("a", "unit: minute, requests_per_unit: 10, algorithm: sliding_log") + limit("b", ten), 1},
		{"log in a smaller window", limit("a", "unit: minute, requests_per_unit: 11, algorithm: sliding_log") + limit("b", ten), 0},
		{"bucket in a log", limit("a", "unit: minute, requests_per_unit: 10, burst: 5") + limit("b", "unit: minute, requests_per_unit: 15, algorithm: sliding_log"), 1},
		{"bucket in a smaller log", limit("a", "unit: minute, requests_per_unit: 10, burst: 5") + limit("b", "unit: minute, requests_per_unit: 14, algorithm: sliding_log"), 0},
		{"bucket in a bucket", limit("a", "unit: minute, requests_per_unit: 10, burst: 5") + limit("b", "unit: minute, requests_per_unit: 10, burst: 6"), 1},
		{"bucket in a slower bucket", limit("a", "unit: minute, requests_per_unit: 10, burst: 5") + limit("b", "unit: minute, requests_per_unit: 9, burst: 6"), 0},
		{"bucket in a smaller bucket", limit("a", "unit: minute, requests_per_unit: 10, burst: 5") + limit("b", "unit: minute, requests_per_unit: 10, burst: 4"), 1}, // b makes a redundant,
		{"log with a gap", limit("a", ten+", algorithm: sliding_log") + limit("b", "unit: minute, requests_per_unit: 20, algorithm: sliding_log, min_gap: 1s"), 0},
	} {
		found, err := Lint([]byte("domain: d\nlimits:\n"+tt.limits), Config{})
		require.NoError(t, err, tt.name)
		n := 0
		for _, f := range found {
			if strings.Contains(f.Problem, "it never refuses") || strings.Contains(f.Problem, "says the same") {
				n++
			}
		}
		require.Equal(t, tt.want, n, "%s: %v", tt.name, found)
	}
}

func TestLint_costsOfEachAlgorithm(t *testing.T) {
	const ten = "unit: minute, requests_per_unit: 10, "
	for words, large := range map[string]bool{
		ten + "algorithm: nginx, burst: 2, cost: 3": false,
		ten + "algorithm: nginx, burst: 2, cost: 4": true,
		ten + "cost: 10":                                                 false,
		ten + "cost: 11":                                                 true,
		ten + "algorithm: sliding_log, cost: 10":                         false,
		ten + "algorithm: sliding_log, cost: 11":                         true,
		ten + "burst: 3, cost: 3":                                        false,
		ten + "burst: 3, cost: 4":                                        true,
		ten + "algorithm: token_bucket, cost: 10":                        false,
		ten + "algorithm: token_bucket, cost: 11":                        true,
		"concurrency: 3, cost: 3":                                        false,
		"concurrency: 3, cost: 4":                                        true,
		ten + "warm_up: {period: 1s}, cost: 11":                          false,
		ten + "soft: 10%, cost: 11":                                      false,
		ten + "soft: 10%, cost: 12":                                      true,
		ten + "cost: 15, active: {requests_per_unit: 20}":                false,
		ten + "cost: 21, active: {requests_per_unit: 20}":                true,
		"unit: minute, requests_per_unit: 10, granularity: 6s, cost: 11": true,
	} {
		found, err := Lint([]byte(limitWith(words)), Config{})
		require.NoError(t, err, words)
		got := false
		for _, f := range found {
			got = got || strings.Contains(f.Problem, "it refuses everything")
		}
		require.Equal(t, large, got, "%s: %v", words, found)
	}
}
