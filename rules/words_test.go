package rules

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// outcomeOf returns the definition of the limit with these words in a rate_limit, or its
// errors.
func outcomeOf(words string) string {
	set, err := Parse([]byte(limitWith(words)), testConfig)
	if err != nil {
		return "error: " + err.Error()
	}
	return set.All()[0].definition()
}

// TestParse_words compares what the words of a rate_limit make, at the ends of their
// ranges, with testdata/words.txt.
func TestParse_words(t *testing.T) {
	const rate = "unit: minute, requests_per_unit: 10, "
	var b strings.Builder
	for _, words := range []string{
		rate + "burst: 0", rate + "algorithm: token_bucket, burst: 1", rate + "algorithm: token_bucket, burst: 10", rate + "algorithm: token_bucket, burst: 11",
		rate + "cost: 0", rate + "cost: 1", rate + "cost: 2",
		rate + "algorithm: leaky_bucket", rate + "algorithm: leaky_bucket, queue: 0", rate + "algorithm: leaky_bucket, queue: 1",
		rate + "algorithm: refill", rate + "algorithm: sliding_log", rate + "algorithm: sliding_log, min_gap: 1ns", rate + "algorithm: sliding_log, count_rejected: true",
		rate + "algorithm: sliding_counter", rate + "algorithm: permits_per_period", rate + "align: first", rate + "align: epoch",
		rate + "granularity: 6s", rate + "granularity: 1m", rate + "granularity: 61s", rate + "granularity: 59s",
		rate + "algorithm: nginx", rate + "algorithm: nginx, burst: 1", rate + "algorithm: nginx, burst: 2, delay: 1", rate + "algorithm: nginx, burst: 2, delay: 0", rate + "algorithm: nginx, burst: 2, nodelay: true",
		"concurrency: 0", "concurrency: 1", "concurrency: 1, max_age: 1ns", "concurrency: 1, max_age: 0s",
		rate + "warm_up: {period: 1ns}", rate + "warm_up: {period: 1m, cold_factor: 1}", rate + "warm_up: {period: 1m, cold_factor: 0.5}", rate + "warm_up: {period: 1m, cold_factor: 0}",
		rate + "warm_up: {period: 1m, cold_factor: 999999}", rate + "warm_up: {period: 1m, cold_factor: 1000000}", rate + "warm_up: {period: 1m, cold_factor: x}", rate + "warm_up: {period: 1m, outage: 1ns}",
		rate + "soft: 0%", rate + "soft: 1%", rate + "soft: 10", rate + "soft: 2147483647%", rate + "soft: 2147483648%", rate + "soft: -1%",
		rate + "ban: {rejections: 1, within: 1m, duration: 1m}", rate + "ban: {rejections: 0, within: 1m, duration: 1m}",
		rate + "ban: {rejections: 1, within: 1m, duration: 1m, max_duration: 1m, forget_after: 1h, max_keys: 1, name: b}", rate + "ban: {rejections: 1, within: 1m, duration: 1m, max_keys: 0}",
		rate + "max_keys: 0", rate + "max_keys: 1", rate + "algorithm: token_bucket, compact: true",
		"calendar: minute, requests_per_unit: 10", "calendar: hour, requests_per_unit: 10", "calendar: month, requests_per_unit: 10, zone: Europe/Berlin",
		"per: 1ns, requests_per_unit: 1", "per: 0s, requests_per_unit: 1", "per: 0d, requests_per_unit: 1", "per: 1d, requests_per_unit: 1", "per: 2w, requests_per_unit: 1", "per: 25h, requests_per_unit: 1",
		"per: 106751d, requests_per_unit: 1", "per: 106752d, requests_per_unit: 1", "per: 15250w, requests_per_unit: 1", "per: 15251w, requests_per_unit: 1", "per: 1h30m, requests_per_unit: 1", "per: 1h0m5s, requests_per_unit: 1",
		"per: xd, requests_per_unit: 1", "unit: Second, requests_per_unit: 1", "unit: week, requests_per_unit: 1", "unit: month, requests_per_unit: 1", "unit: year, requests_per_unit: 1",
		rate + "active: {from: '00:00', to: '24:00', requests_per_unit: 1}", rate + "active: {from: '09:30:59', to: '24:00:01'}", rate + "active: {from: '09:30:59', to: '23:59:59', requests_per_unit: 0}",
		rate + "active: {from: '9:05', requests_per_unit: 1}", rate + "active: {from: '09:60'}", rate + "active: {from: '09:00:60'}", rate + "active: {from: '009:00'}", rate + "active: {from: '09'}", rate + "active: {from: '09:00:00:00'}",
		rate + "active: {days: mon, requests_per_unit: 1}", rate + "active: {days: [sat-mon, wed], requests_per_unit: 1}", rate + "active: {days: mon-sun, requests_per_unit: 1}", rate + "active: {days: Friday, unit: hour}",
		rate + "active: {days: mon-, unit: hour}", rate + "active: {days: -mon, unit: hour}", rate + "active: {from: '09:00', zone: Europe/Berlin, unit: hour}", rate + "active: {from: '09:00', zone: ''}",
		rate + "active: {from: '09:00', unit: hour, per: 1m}", rate + "algorithm: token_bucket, burst: 7, active: {from: '09:00', burst: 3}", rate + "algorithm: token_bucket, burst: 7, active: {from: '09:00', requests_per_unit: 3}",
		"unlimited: true", "unlimited: false", "unit: minute, requests_per_unit: 0", "unit: minute, requests_per_unit: 9223372036854775807",
	} {
		fmt.Fprintf(&b, "%s\n\t%s\n", words, strings.ReplaceAll(outcomeOf(words), "\n", "\n\t"))
	}
	golden(t, "words.txt", b.String())
}

// TestParse_boundsOfPaths checks the longest path and the longest key.
func TestParse_boundsOfPaths(t *testing.T) {
	for n, ok := range map[int]bool{64: true, 65: false} {
		_, err := Parse([]byte(matching(strings.Repeat("/a", n))), Config{})
		require.Equal(t, ok, err == nil, "%d segments: %v", n, err)
	}
	for n, ok := range map[int]bool{maxDepth: true, maxDepth + 1: false} {
		var path, key []string
		for i := range n {
			path, key = append(path, fmt.Sprintf("{p%d}", i)), append(key, fmt.Sprintf("'{p%d}'", i))
		}
		_, err := Parse([]byte("domain: d\nlimits: [{name: a, match: '/"+strings.Join(path, "/")+"', key: ["+strings.Join(key, ", ")+"], rate_limit: {unlimited: true}}]"), Config{})
		require.Equal(t, ok, err == nil, "%d parts: %v", n, err)
	}
	for m, ok := range map[string]bool{
		"'/a/{x}/{y}'": true, "'/{x...}'": true, "'/{$}'": true, "'/a/{x...}'": true, "'/{x}/{x...}'": false, "'/x}'": false, "'/{x'": false, "'/{{x}}'": false, "'/a{x}'": false, "'/{}'": false,
		"'GET   /a'": true, "'*.a.b/c'": true, "'[::1]/c'": true, "'a:1/c'": false, "'a b/c'": false, "'*/c'": false, "'A.TEST./c'": true, "''": false,
	} {
		_, err := Parse([]byte(matching(m)), Config{})
		require.Equal(t, ok, err == nil, "%s: %v", m, err)
	}
}

// TestLint_redundant checks pairs of limits that apply to the same requests. In a minute of
// the second one, the first one grants as many units, or one more.
func TestLint_redundant(t *testing.T) {
	window := func(n int, per string) string { return fmt.Sprintf("requests_per_unit: %d, per: %s", n, per) }
	for _, c := range []struct {
		name, first, second string
		redundant           bool
	}{
		{"equal windows", window(10, "1m"), window(10, "60s"), true},
		{"a smaller count", window(9, "1m"), window(10, "1m"), true},
		{"a larger count", window(11, "1m"), window(10, "1m"), false},
		{"a multiple", window(10, "2m"), window(10, "1m"), false},
		{"a divisor", window(5, "30s"), window(10, "1m"), false},
		{"neither", window(10, "40s"), window(31, "1m"), false},
		{"cost", window(10, "1m") + ", cost: 2", window(10, "1m"), true},
		{"cost of the other", window(10, "1m"), window(10, "1m") + ", cost: 2", false},
		{"cost of the other, larger", window(10, "1m"), window(20, "1m") + ", cost: 2", true},
		{"a bucket of the same rate", "algorithm: token_bucket, burst: 5, " + window(10, "1m"), "algorithm: token_bucket, burst: 6, " + window(10, "1m"), true},
		{"a bucket of a higher rate", "algorithm: token_bucket, burst: 5, " + window(11, "1m"), "algorithm: token_bucket, burst: 6, " + window(10, "1m"), false},
		{"a bucket of a larger burst", "algorithm: token_bucket, burst: 7, " + window(10, "1m"), "algorithm: token_bucket, burst: 6, " + window(10, "1m"), false},
		{"a bucket and a window", "algorithm: token_bucket, burst: 5, " + window(5, "1m"), window(10, "1m"), false},
		{"a bucket and a log", "algorithm: token_bucket, burst: 5, " + window(5, "1m"), "algorithm: sliding_log, " + window(10, "1m"), false},
		{"a log and a bucket", "algorithm: sliding_log, " + window(5, "1m"), "algorithm: token_bucket, burst: 5, " + window(5, "1m"), false},
		{"a log and a log with a gap", "algorithm: sliding_log, " + window(5, "1m"), "algorithm: sliding_log, min_gap: 1s, " + window(5, "1m"), false},
		{"a window and a log", window(5, "1m"), "algorithm: sliding_log, " + window(10, "1m"), false},
		{"soft", window(9, "1m") + ", soft: 10%", window(10, "1m"), true},
		{"a large soft", window(9, "1m") + ", soft: 30%", window(10, "1m"), false},
		{"a window of the calendar", "requests_per_unit: 1, calendar: day", window(10, "1m"), false},
		{"blocked", window(0, "1m"), window(10, "1m"), true},
		{"unlimited", window(1, "1m"), "unlimited: true", false},
		{"hours", window(1, "1m") + ", active: {from: '09:00', requests_per_unit: 2}", window(10, "1m"), false},
		{"in flight", "concurrency: 1", window(10, "1m"), false},
	} {
		for _, place := range []struct {
			first, second string
			same          bool
		}{{"/", "/a", true}, {"/a", "/a", true}, {"/a", "/b", false}} {
			text := fmt.Sprintf("domain: d\nlimits:\n- {name: one, match: %s, rate_limit: {%s}}\n- {name: two, match: %s, rate_limit: {%s}}\n", place.first, c.first, place.second, c.second)
			found, err := Lint([]byte(text), Config{})
			require.NoError(t, err, c.name)
			redundant := false
			for _, f := range found {
				redundant = redundant || strings.Contains(f.String(), "two: it never rejects") || strings.Contains(f.String(), "says the same of the same requests")
			}
			require.Equal(t, c.redundant && place.same, redundant, "%s, %s and %s: %v", c.name, place.first, place.second, found)
		}
	}
}

// TestReload_movesAnUnchangedLimit checks that a limit in force has its new position.
func TestReload_movesAnUnchangedLimit(t *testing.T) {
	lines := lineHook{}
	s := Config{DecisionHook: lines}
	const limit = "descriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 5}}]"
	p, err := parse([]byte("domain: d\n"+limit), &s)
	require.NoError(t, err)
	set, err := p.activate(s, nil)
	require.NoError(t, err)
	moved := reload(t, set, "domain: d\n\n\n"+limit, s)
	for _, each := range []*Set{set, moved} {
		_, err := each.rules[0].limiter.Reserve(t.Context(), throttle.Claim{Key: "x"})
		require.NoError(t, err)
	}
	require.Equal(t, lineHook{4: 2}, lines, "both are the same limiter")
}

// A lineHook counts decisions by the line of the limit.
type lineHook map[int]int

func (h lineHook) Decided(l *Limit, _ throttle.Claim, _ throttle.Decision) { h[l.Line]++ }
func (lineHook) Cancelled(*Limit, throttle.Claim, throttle.Decision)       {}
func (lineHook) Observed(context.Context, *Limit, throttle.Claim, throttle.Decision, throttle.Feedback) {
}

// TestActiveLimit_hookInClosedHours checks which claims count while nothing is granted.
func TestActiveLimit_hookInClosedHours(t *testing.T) {
	w := decisionCounts{}
	words := "rate_limit: {unit: minute, requests_per_unit: 0, active: {from: 09:00, to: 17:00, requests_per_unit: 5}}"
	for _, l := range []throttle.Limiter{
		oneRule(t, words, Config{Clock: fixedClock(friday), DecisionHook: w}).limiter,
		oneRule(t, "value: b, shadow_mode: true, "+words, Config{Clock: fixedClock(friday), DecisionHook: w}).limiter,
	} {
		for _, c := range []throttle.Claim{{Key: "k"}, {Key: "k", DryRun: true}, {Key: "k", Waits: true}, {Key: "k", Waits: true, DryRun: true}, {Key: "k", Now: friday.Add(10 * time.Hour), Waits: true}} {
			_, err := l.Reserve(t.Context(), c)
			require.NoError(t, err)
		}
		_, err := l.Reserve(t.Context(), throttle.Claim{Cost: -1})
		require.ErrorIs(t, err, throttle.ErrCost)
		require.True(t, l.Traits().CountsRejected)
	}
	for id := range w {
		id, _, _ := strings.Cut(id, " ")
		switch {
		case strings.Contains(id, "="):
			require.Equal(t, 2, w[id+" over"], "%v", w)
		default:
			require.Equal(t, 1, w[id+" rejected"], "%v", w)
		}
		require.Equal(t, 1, w[id+" granted"], "%v", w)
	}
	require.Len(t, w, 4)
}

// TestActiveLimit_waitEndsWithThePeriod checks the wait of a rejection shortly before a
// period with a larger amount, and of a claim that no period grants.
func TestActiveLimit_waitEndsWithThePeriod(t *testing.T) {
	words := "rate_limit: {unit: hour, requests_per_unit: 1, algorithm: token_bucket, active: {from: 09:00, to: 17:00, requests_per_unit: 100}}"
	for _, c := range []struct {
		at   string
		n    int64
		want time.Duration
	}{
		{"08:00:01", 1, 59*time.Minute + 59*time.Second}, {"08:59:59", 1, time.Second}, {"08:30:00", 100, 30 * time.Minute}, {"08:30:00", 101, throttle.Forever},
	} {
		g := activeLimitOf(t, words)
		require.True(t, reserveAt(t, g, 1, "08:00:00").OK)
		d := reserveAt(t, g, c.n, c.at)
		require.False(t, d.OK)
		require.Equal(t, c.want, d.Wait, "%d at %s", c.n, c.at)
	}
	g := activeLimitOf(t, words)
	d := reserveAt(t, g, 1, "08:00:00")
	require.True(t, d.OK)
	require.Zero(t, d.Wait)
}

// TestActiveLimit_observesAndIsNonBlocking checks a limit in force and a retired one.
func TestActiveLimit_observesAndIsNonBlocking(t *testing.T) {
	set := reload(t, nil, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 10, algorithm: token_bucket}}]", Config{Clock: fixedClock(friday)})
	g, c, d := take(t, set, 2)
	require.True(t, g.Traits().NonBlocking)
	g.Report(t.Context(), c, d, throttle.Feedback{Now: friday, Cost: 5})
	require.EqualValues(t, 5, remaining(t, set, 0))
	other := reload(t, set, "domain: d\ndescriptors: [{key: a, rate_limit: {unit: day, requests_per_unit: 10, algorithm: sliding_log, count_rejected: true}}]", Config{Clock: fixedClock(friday)})
	require.True(t, g.Traits().NonBlocking)
	_, err := g.Reserve(t.Context(), throttle.Claim{Key: "x", Now: friday, Cost: 3})
	require.NoError(t, err)
	require.EqualValues(t, 7, remaining(t, other, 0), "claims are passed to the successor")
}

// TestActiveLimit_timesOfTheClock checks claims without a time of their own.
func TestActiveLimit_timesOfTheClock(t *testing.T) {
	words := "rate_limit: {unit: minute, requests_per_unit: 0, active: {from: 09:00, to: 17:00, requests_per_unit: 5}}"
	for at, want := range map[time.Duration]bool{9*time.Hour - 1: false, 9 * time.Hour: true, 17*time.Hour - 1: true, 17 * time.Hour: false} {
		clk := &movingClock{now: friday}
		g := oneRule(t, words, Config{Clock: clk}).limiter
		clk.now = friday.Add(at)
		d, err := g.Reserve(t.Context(), throttle.Claim{Key: "k"})
		require.NoError(t, err)
		require.Equal(t, want, d.OK, at)
	}
}

type movingClock struct{ now time.Time }

func (c *movingClock) Now() time.Time                     { return c.now }
func (*movingClock) After(time.Duration) <-chan time.Time { return nil }

func TestWellKnownValues_ofUnusualRequests(t *testing.T) {
	withURL := &http.Request{URL: &url.URL{Host: "API.test:80", Path: "/a"}}
	ofPath := func(path string) *http.Request { return &http.Request{URL: &url.URL{Path: path}} }
	for _, c := range []struct {
		key  string
		r    *http.Request
		want string
	}{
		{"host", withURL, "api.test"}, {"host", &http.Request{}, ""}, {"host", &http.Request{Host: "B.test", URL: withURL.URL}, "b.test"},
		{"path", ofPath("//a"), "/a"}, {"path", ofPath("/./a/../b"), "/b"}, {"path", ofPath("/a//"), "/a/"}, {"path", ofPath("/../"), "/"}, {"path", ofPath("/a/"), "/a/"},
		{"path", ofPath("/a/.b"), "/a/.b"}, {"path", ofPath("*"), "*"}, {":path", ofPath("//a"), "/a"},
		{"path", withURL, "/a"}, {"path", &http.Request{}, ""}, {"method", &http.Request{}, "GET"}, {"method", &http.Request{Method: "PUT"}, "PUT"},
		{"remote_address", &http.Request{}, ""}, {"remote_address", &http.Request{RemoteAddr: "1.2.3.4:5"}, "1.2.3.4"}, {"remote_address", &http.Request{RemoteAddr: "1.2.3.4"}, "1.2.3.4"},
		{"remote_address", &http.Request{RemoteAddr: "[2001:db8::1]:5"}, "2001:db8::/64"}, {"remote_address", &http.Request{RemoteAddr: "[::ffff:1.2.3.4]:5"}, "1.2.3.4"},
		{"remote_address", &http.Request{RemoteAddr: "@"}, "@"}, {"remote_address", &http.Request{RemoteAddr: "[fe80::1%eth0]:5"}, "fe80::/64"},
	} {
		got, ok := wellKnown[c.key](c.r)
		require.Equal(t, c.want, got, "%s of %+v", c.key, c.r)
		require.Equal(t, c.want != "", ok)
	}
	r := &http.Request{Header: http.Header{"X-A": {"a"}, "X-B": {"a", "b"}, "X-C": {""}}}
	for name, want := range map[string]string{"x-a": "a", "X-B": "a,b", "X-C": "", "X-D": ""} {
		got, ok := header(name)(r)
		require.Equal(t, want, got, name)
		require.Equal(t, want != "", ok, name)
	}
}

// TestValues_ofTheLongestText checks the longest text that is searched, and the longest value
// that is not hashed.
func TestValues_ofTheLongestText(t *testing.T) {
	pad := func(s string, n int) string { return s + strings.Repeat("x", n-len(s)) }
	for n, long := range map[int]bool{maxSearched: false, maxSearched + 1: true} {
		got, _ := query("a")(&http.Request{URL: &url.URL{RawQuery: pad("a=1&b=", n)}})
		require.Equal(t, long, got == ambiguous, "query of %d", n)
		got, _ = cookie("a")(&http.Request{Header: http.Header{"Cookie": {"a=1", pad("b=", n-len("a=1"))}}})
		require.Equal(t, long, got == ambiguous, "cookies of %d", n)
	}
	for n, long := range map[int]bool{maxValueLen: false, maxValueLen + 1: true} {
		require.Equal(t, long, strings.HasPrefix(hashIfLong(strings.Repeat("x", n)), hashPrefix), n)
	}
	for value, want := range map[string]string{`"v"`: "v", `"`: "", `""`: "", "v w": "v w", "v\x1f": "", "v\x7f": "", "v~": "v~", `v"w`: "", `v\w`: ""} {
		got, _ := cookie("a")(&http.Request{Header: http.Header{"Cookie": {"a=" + value}}})
		require.Equal(t, want, got, "%q", value)
	}
}
