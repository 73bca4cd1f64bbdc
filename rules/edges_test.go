package rules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/warmup"
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
		ten + "ban: {rejections: 1, within: 1s, duration: 1s, max_keys: 1}":       "fixed_window 10 per 1m from the epoch; ban of 1s after 1 rejections in 1s, of 1 keys",
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
		set.Add(&ticket, ds...)
		require.Len(t, ticket.Demands, 3)
		for i, r := range set.rules {
			require.Same(t, r.limiter, ticket.Demands[i].Limiter)
		}
	}
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
		{nginx, nginx, false}, {places, throttle.ConcurrencyConfig{Count: 9}, true}, {places, throttle.ConcurrencyConfig{Count: 1, MaxAge: 1}, false}, {bucket, throttle.PerMinute(7), true}, {nginx, bucket, false},
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
	const plain, banned = "value: b, rate_limit: {unit: hour, requests_per_unit: 1}", "value: b, rate_limit: {unit: hour, requests_per_unit: 1, ban: {rejections: 1, within: 1s, duration: 1s}}"
	for _, tt := range []struct {
		words     string
		successor *activeLimit
		want      bool
	}{
		{plain, nil, false}, {banned, nil, false}, {banned, activeLimitOf(t, plain), false}, {plain, activeLimitOf(t, banned), true},
	} {
		g := activeLimitOf(t, tt.words)
		require.Equal(t, tt.words == banned, g.Traits().CountsRejected)
		require.True(t, g.Traits().NonBlocking)
		g.retire(tt.successor)
		require.Equal(t, tt.want, g.Traits().CountsRejected, tt.words)
		require.True(t, g.Traits().NonBlocking)
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

// TestLint_comparesWithCare lints pairs of limits that the golden file does not contain. Limits of different algorithms
// or windows are not compared.
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
		{"aligned windows", limit("a", "unit: minute, requests_per_unit: 1") + limit("b", "unit: hour, requests_per_unit: 60"), 0},
		{"aligned windows, longer", limit("a", "unit: hour, requests_per_unit: 10") + limit("b", ten), 0},
		{"windows that do not align, all", limit("a", "per: 40s, requests_per_unit: 10") + limit("b", "per: 60s, requests_per_unit: 30"), 0},
		{"log in a window", limit("a", "unit: minute, requests_per_unit: 10, algorithm: sliding_log") + limit("b", ten), 0},
		{"bucket in a log", limit("a", "unit: minute, requests_per_unit: 10, burst: 5") + limit("b", "unit: minute, requests_per_unit: 15, algorithm: sliding_log"), 0},
		{"bucket in a bucket", limit("a", "unit: minute, requests_per_unit: 10, burst: 5") + limit("b", "unit: minute, requests_per_unit: 10, burst: 6"), 1},
		{"bucket in a slower bucket", limit("a", "unit: minute, requests_per_unit: 10, burst: 5") + limit("b", "unit: minute, requests_per_unit: 9, burst: 6"), 0},
		{"bucket in a smaller bucket", limit("a", "unit: minute, requests_per_unit: 10, burst: 5") + limit("b", "unit: minute, requests_per_unit: 10, burst: 4"), 1}, // b makes a redundant,
		{"log with a gap", limit("a", ten+", algorithm: sliding_log") + limit("b", "unit: minute, requests_per_unit: 20, algorithm: sliding_log, min_gap: 1s"), 0},
	} {
		found, err := Lint([]byte("domain: d\nlimits:\n"+tt.limits), Config{})
		require.NoError(t, err, tt.name)
		n := 0
		for _, f := range found {
			if strings.Contains(f.Problem, "it never rejects") || strings.Contains(f.Problem, "says the same") {
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
		ten + "burst: 1, cost: 1":                                        false,
		ten + "burst: 1, cost: 2":                                        true,
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
			got = got || strings.Contains(f.Problem, "it rejects everything")
		}
		require.Equal(t, large, got, "%s: %v", words, found)
	}
}

// A scriptedLimiter returns the same Decision for each claim, and counts the states of Report.
type scriptedLimiter struct {
	decision            throttle.Decision
	cancelled, observed int
}

func (s *scriptedLimiter) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	return s.decision, nil
}

func (s *scriptedLimiter) Report(_ context.Context, _ throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		s.cancelled++
		return
	}
	s.observed++
}

// Traits implements throttle.Limiter.
func (*scriptedLimiter) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// TestActiveLimit_passesClaimsOfOtherLimitersOn checks that a limiter of Config.Build gets Cancel
// and Observe of all claims that it granted, whatever its decisions contain.
func TestActiveLimit_passesClaimsOfOtherLimitersOn(t *testing.T) {
	for _, d := range []throttle.Decision{
		{OK: true},
		{OK: true, Grant: math.MaxUint64},
		{OK: true, OverLimit: true},
		{OK: true, OverLimit: true, Grant: math.MaxUint64 - 1},
		{OK: true, OverLimit: true, Limit: 1},
		{OK: true, Limit: 1, Grant: math.MaxUint64},
	} {
		s := &scriptedLimiter{decision: d}
		g := oneRule(t, "rate_limit: {unit: day, requests_per_unit: 1, active: {from: 09:00, to: 17:00, requests_per_unit: 5}}", Config{
			Clock: fixedClock(friday),
			Build: func(*Limit) (throttle.Limiter, error) { return s, nil },
		}).limiter
		c := throttle.Claim{Now: friday}
		got, err := g.Reserve(t.Context(), c)
		require.NoError(t, err)
		require.Equal(t, d, got)
		g.Report(t.Context(), c, got, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		g.Report(t.Context(), c, got, throttle.Feedback{})
		require.Equal(t, [2]int{1, 1}, [2]int{s.cancelled, s.observed}, "%+v", d)
	}
}

// TestActiveLimit_waitsOfItsLimiter checks which waits end with the period: those of rejections,
// unless the claim exceeds what any period allows.
func TestActiveLimit_waitsOfItsLimiter(t *testing.T) {
	const never = throttle.Forever
	for _, tt := range []struct {
		decision throttle.Decision // at 08:00:00
		cost     int64
		want     time.Duration
	}{
		{throttle.Decision{OK: true, Wait: 2 * time.Hour}, 1, 2 * time.Hour}, // begins later
		{throttle.Decision{}, 1, 0}, // not known
		{throttle.Decision{Wait: time.Minute}, 1, time.Minute},
		{throttle.Decision{Wait: time.Hour}, 1, time.Hour},
		{throttle.Decision{Wait: time.Hour + 1}, 1, time.Hour},
		{throttle.Decision{Wait: never}, 5, time.Hour},
		{throttle.Decision{Wait: never}, 6, never},
	} {
		tt.decision.At = friday.Add(8 * time.Hour)
		g := oneRule(t, "rate_limit: {unit: day, requests_per_unit: 1, active: {from: 09:00, to: 17:00, requests_per_unit: 5}}", Config{
			Clock: fixedClock(friday),
			Build: func(*Limit) (throttle.Limiter, error) { return &scriptedLimiter{decision: tt.decision}, nil },
		}).limiter
		require.Equal(t, tt.want, reserveAt(t, g, tt.cost, "08:00:00").Wait, "%+v", tt)
	}
}

// TestActiveLimit_shadowInClosedHoursDoesNotWait checks the decision on a claim that shadow mode
// grants outside the active period.
func TestActiveLimit_shadowInClosedHoursDoesNotWait(t *testing.T) {
	g := oneRule(t, "value: b, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 0, active: {from: 09:00, to: 17:00, requests_per_unit: 5}}", Config{Clock: fixedClock(friday)}).limiter
	d := reserveAt(t, g, 1, "08:00:00")
	require.True(t, d.OK && d.OverLimit)
	require.Zero(t, d.Wait)
}

// TestKeyLimiter_claimsWithoutTimeGetChangesAsOfTheirTime changes a drained bucket of one unit a
// second to a tenth of that after 30 seconds, and asks it 10 seconds later.
func TestKeyLimiter_claimsWithoutTimeGetChangesAsOfTheirTime(t *testing.T) {
	clk := &movingClock{friday}
	s := Config{Clock: clk}
	set, err := Parse([]byte(limitWith("unit: minute, requests_per_unit: 60, burst: 60")), s)
	require.NoError(t, err)
	reserve := func(n int64) throttle.Decision {
		d, err := set.rules[0].limiter.Reserve(t.Context(), throttle.Claim{Key: "x", Cost: n})
		require.NoError(t, err)
		return d
	}
	require.True(t, reserve(60).OK)
	clk.now = clk.now.Add(30 * time.Second)
	set = reload(t, set, limitWith("unit: minute, requests_per_unit: 6, burst: 60"), s)
	clk.now = clk.now.Add(10 * time.Second)
	require.EqualValues(t, 31, reserve(60).Remaining)
}

// TestCheckAliases_boundaries checks how many nodes aliases may add: each of n aliases stands for
// a list of 100 texts.
func TestCheckAliases_boundaries(t *testing.T) {
	for more, want := range map[int]bool{-1: true, 0: true, 1: false} {
		list := &yaml.Node{Kind: yaml.SequenceNode, Anchor: "a"}
		for range 100 {
			list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode})
		}
		small := &yaml.Node{Kind: yaml.SequenceNode, Anchor: "b", Content: []*yaml.Node{{Kind: yaml.ScalarNode}}}
		doc := &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{list, small}}
		for range maxAliased/100 - 1 {
			doc.Content = append(doc.Content, &yaml.Node{Kind: yaml.AliasNode, Alias: list})
		}
		for range 100 + more {
			doc.Content = append(doc.Content, &yaml.Node{Kind: yaml.AliasNode, Alias: small})
		}
		r := &reader{config: &Config{}}
		require.Equal(t, want, r.checkAliases(doc), more)
		require.Equal(t, want, len(r.faults) == 0)
	}
}

// TestDescribe_optionalProperties checks the text of each algorithm with its optional properties
// unset, and with the smallest values.
func TestDescribe_optionalProperties(t *testing.T) {
	l := throttle.Limit{Count: 7, Per: time.Minute}
	for want, s := range map[string]Spec{
		"7 per 1m":                    l,
		"7 per 1m, burst 1":           throttle.Limit{Count: 7, Per: time.Minute, Burst: 1},
		"7 per 1m, burst 8":           throttle.RefillBucketConfig{Limit: throttle.Limit{Count: 7, Per: time.Minute, Burst: 8}},
		"7 per 1m, queue 1":           throttle.LeakyBucketConfig{Limit: l, Queue: 1},
		"7 per 1m, gap 1ns":           throttle.SlidingLogConfig{Limit: l, MinGap: 1},
		"7 per 1m, counting rejected": throttle.SlidingLogConfig{Limit: l, CountRejected: true},
		"7 per 1m, by 1m":             throttle.SlidingCounterConfig{Limit: l, Parts: 1},
		"7 per 1m, by 30s":            throttle.SlidingCounterConfig{Limit: l, Parts: 2},
		"7 per 1m, burst 1, delay 1":  throttle.NginxConfig{Rate: 7, Per: time.Minute, Burst: 1, Delay: 1},
		"7 per 1m, nodelay":           throttle.NginxConfig{Rate: 7, Per: time.Minute, NoDelay: true},
		"7 at a time":                 throttle.ConcurrencyConfig{Count: 7},
		"7 at a time, lost after 1ns": throttle.ConcurrencyConfig{Count: 7, MaxAge: 1},
		"7 per 1m, warm after 1ns, cold factor 0.5, cold after an outage of 1ns": warmup.Config{Limit: l, Period: 1, ColdFactor: .5, Outage: 1},
	} {
		require.Equal(t, want, describe(s))
	}
	for _, s := range []Spec{
		throttle.RefillBucketConfig{Limit: l}, throttle.LeakyBucketConfig{Limit: l}, throttle.SlidingLogConfig{Limit: l}, throttle.SlidingCounterConfig{Limit: l},
		throttle.NginxConfig{Rate: 7, Per: time.Minute}, warmup.Config{Limit: l}, throttle.Limit{Count: 7, Per: time.Minute, Burst: 7},
	} {
		require.Equal(t, "7 per 1m", describe(s), "%T", s)
	}
	ban := keyed.BanConfig{Rejections: 1, Within: time.Second, Duration: time.Minute}
	require.Equal(t, "ban of 1m after 1 rejections in 1s", banText(&ban))
	ban.MaxDuration, ban.ForgetAfter, ban.MaxKeys, ban.Name = 1, 1, 1, "n"
	require.Equal(t, "ban of 1m after 1 rejections in 1s, at most 1ns, forgotten after 1ns, of 1 keys, named n", banText(&ban))
	require.Empty(t, banText(nil))
}

// TestLint_windowEdgesNeedTwoUnits checks that a window of one unit is not reported.
func TestLint_windowEdgesNeedTwoUnits(t *testing.T) {
	for words, want := range map[string]int{"requests_per_unit: 1": 0, "requests_per_unit: 2": 1} {
		found, err := Lint([]byte(limitWith("unit: minute, "+words)), Config{})
		require.NoError(t, err)
		n := 0
		for _, f := range found {
			if strings.Contains(f.Problem, "at the edge of two windows") {
				require.Contains(t, f.Problem, "here 4 (so in 1 of 1 limits)")
				n++
			}
		}
		require.Equal(t, want, n, "%s: %v", words, found)
	}
}

// TestLint_localZoneOncePerLimit reports a limit with two periods in the zone of the machine.
func TestLint_localZoneOncePerLimit(t *testing.T) {
	r := &rule{limit: &Limit{Active: []Period{{}, {Zone: time.Local}, {Zone: time.Local}}}}
	l := linter{parsedFile: &parsedFile{}}
	l.localZone(r)
	require.Len(t, l.findings, 1)
	l.localZone(&rule{limit: &Limit{Active: []Period{{}, {Zone: time.UTC}}}})
	require.Len(t, l.findings, 1)
	l.localZone(&rule{limit: &Limit{Spec: throttle.FixedWindowConfig{Zone: time.Local}}})
	require.Len(t, l.findings, 2)
}

// TestLint_namesTheFirstOfManyLimits checks the position of the finding for a key that requests
// do not have.
func TestLint_namesTheFirstOfManyLimits(t *testing.T) {
	text := "domain: d\ndescriptors:\n"
	for i := range 12 {
		text += fmt.Sprintf("- {key: unknown, value: v%d, rate_limit: {unit: hour, requests_per_unit: 1}}\n", i)
	}
	text += "- {key: unknown, value: '', rate_limit: {unit: hour, requests_per_unit: 1}}\n"
	found, err := Lint([]byte(text), Config{})
	require.NoError(t, err)
	require.NotEmpty(t, found)
	n := 0
	for _, f := range found {
		if strings.Contains(f.Problem, `requests have no "unknown"`) {
			require.Equal(t, 3, f.Line)
			n++
		}
	}
	require.Equal(t, 1, n)
}

// TestLint_skippedRequestsKeepReplacedLimits checks that a limit is not reported if another one
// replaces it only for requests that have a key.
func TestLint_skippedRequestsKeepReplacedLimits(t *testing.T) {
	for words, want := range map[string]bool{"": true, "key: user, ": true, "key: user, unidentified: skip, ": false} {
		text := "domain: d\nvalues: {user: {header: X-User}}\nlimits:\n- {name: a, match: /a, rate_limit: {unit: hour, requests_per_unit: 1}}\n- {name: b, match: /a, " + words +
			"rate_limit: {unit: hour, requests_per_unit: 2, replaces: [{name: a}]}}\n"
		found, err := Lint([]byte(text), Config{})
		require.NoError(t, err)
		got := slices.ContainsFunc(found, func(f Finding) bool { return strings.Contains(f.Problem, "it never holds") })
		require.Equal(t, want, got, "%s: %v", words, found)
	}
}

// TestParse_boundsOfWords checks the first and the last valid value of words, and the error of the
// next one.
func TestParse_boundsOfWords(t *testing.T) {
	for words, want := range map[string]string{
		"per: 10ns, requests_per_unit: 1, granularity: 1ns":      "sub_windows 1 per 10ns, by 1ns",
		"per: 10us, requests_per_unit: 1, granularity: 1ns":      "sub_windows 1 per 10µs, by 1ns",
		"per: 10001ns, requests_per_unit: 1, granularity: 1ns":   "no more than 10000",
		"unit: second, per: 1ns, requests_per_unit: 1":           "unit and per: leave one of them out",
		"unit: year, requests_per_unit: 1, burst: 35, soft: 10%": "soft: ",
	} {
		require.Contains(t, outcomeOf(words), want, words)
	}
}

// TestParse_invalidRateLimitsOfRoutes checks that an invalid rate_limit of the section limits is
// reported.
func TestParse_invalidRateLimitsOfRoutes(t *testing.T) {
	for _, words := range []string{"{}", "{unit: hour}", "{requests_per_unit: 1}", "{unit: hour, requests_per_unit: 1, max_keys: 99999999}"} {
		for _, key := range []string{"", "key: host, "} {
			_, err := Parse([]byte("domain: d\nlimits: [{name: a, "+key+"rate_limit: "+words+"}]"), Config{})
			var fault *Error
			require.ErrorAs(t, err, &fault, words)
		}
	}
}

func TestTruncate_boundaries(t *testing.T) {
	text := strings.Repeat("x", 64)
	require.Equal(t, text, truncate(text))
	require.Equal(t, text+"…", truncate(text+"y"))
	require.Empty(t, truncate(""))
}

// TestSet_addAppliesReplaces checks that limits that are found by descriptors replace each other.
func TestSet_addAppliesReplaces(t *testing.T) {
	set, err := Parse([]byte("domain: d\ndescriptors:\n- {key: a, rate_limit: {name: one, unit: hour, requests_per_unit: 1}}\n"+
		"- {key: b, rate_limit: {unit: hour, requests_per_unit: 2, replaces: [{name: one}]}}\n- {key: c, rate_limit: {unlimited: true}}\n"), Config{})
	require.NoError(t, err)
	var ticket queue.Ticket
	set.Add(&ticket, Descriptor{{Key: "a"}}, Descriptor{}, Descriptor{{Key: "b"}}, Descriptor{{Key: "c"}})
	require.Len(t, ticket.Demands, 1)
	require.Same(t, set.rules[1].limiter, ticket.Demands[0].Limiter)

	set, err = Parse([]byte("domain: d\nlimits:\n- {name: one, rate_limit: {unit: hour, requests_per_unit: 1}}\n"+
		"- {name: two, match: /a, rate_limit: {unit: hour, requests_per_unit: 2, replaces: [{name: one}]}}\n"), Config{})
	require.NoError(t, err)
	for path, want := range map[string]int{"/a": 1, "/b": 0} {
		var ticket queue.Ticket
		require.NoError(t, set.Limits(httptest.NewRequest(http.MethodGet, path, nil), &ticket))
		require.Len(t, ticket.Demands, 1)
		require.Same(t, set.rules[want].limiter, ticket.Demands[0].Limiter)
	}
}

// TestSet_addIgnoresLongerDescriptors checks descriptors with as many entries as descriptors can
// be nested, and with more.
func TestSet_addIgnoresLongerDescriptors(t *testing.T) {
	deep, tail := "domain: d\n", ""
	for range maxDepth {
		deep, tail = deep+"descriptors: [{key: k, value: '', rate_limit: {unit: hour, requests_per_unit: 1}, ", "}]"+tail
	}
	set, err := Parse([]byte(strings.TrimSuffix(deep, ", ")+tail), Config{})
	require.NoError(t, err)
	require.Len(t, set.All(), maxDepth)
	for n, want := range map[int]bool{0: false, 1: true, maxDepth: true, maxDepth + 1: false, 5 * maxDepth: false} {
		d := make(Descriptor, n)
		for i := range d {
			d[i] = Entry{"k", "v"}
		}
		var ticket queue.Ticket
		set.Add(&ticket, d)
		require.Equal(t, want, len(ticket.Demands) > 0, n)
	}
}

// TestSet_keysOfManyLimits checks that each of many limits gets its own key, also if that has several parts.
func TestSet_keysOfManyLimits(t *testing.T) {
	text := "domain: d\nvalues: {a: {header: A}, b: {header: B}}\nlimits:\n"
	for i, key := range []string{"a", "b", "[a, b]", "a", "[b, a]", "b", "[a, b]"} {
		text += fmt.Sprintf("- {name: l%d, key: %s, rate_limit: {unit: day, requests_per_unit: 1}}\n", i, key)
	}
	set, err := Parse([]byte(text), Config{})
	require.NoError(t, err)
	var ticket queue.Ticket
	long := strings.Repeat("x", 12)
	require.NoError(t, set.Limits(&http.Request{Method: "GET", URL: &url.URL{Path: "/"}, Header: http.Header{"A": {"1"}, "B": {long}}}, &ticket))
	var keys []string
	for _, d := range ticket.Demands {
		keys = append(keys, d.Key)
	}
	require.Equal(t, []string{"1", long, "1:112:" + long, "1", "12:" + long + "1:1", long, "1:112:" + long}, keys)
}

// TestFileWatcher_wait checks when events end a wait.
func TestFileWatcher_wait(t *testing.T) {
	type step struct {
		after time.Duration
		name  string // "": an error, which means lost events
		op    fsnotify.Op
	}
	every := func(d time.Duration, n int, op fsnotify.Op) (all []step) {
		for range n {
			all = append(all, step{d, "/d/limits.yaml", op})
		}
		return all
	}
	renamed, written := fsnotify.Create, fsnotify.Write
	for name, tt := range map[string]struct {
		steps []step
		want  time.Duration
	}{
		"one event":                 {every(time.Hour, 1, renamed), time.Hour + settleTime},
		"events in quick order":     {every(settleTime-1, 3, renamed), 3*(settleTime-1) + settleTime},
		"events with pauses":        {every(settleTime+1, 3, renamed), settleTime + 1 + settleTime},
		"events without end":        {every(settleTime/2, 1000, renamed), settleTime/2 + maxSettleTime},
		"one write":                 {every(time.Hour, 1, written), time.Hour + writeSettleTime},
		"writes with short pauses":  {every(writeSettleTime-1, 9, written), 9*(writeSettleTime-1) + writeSettleTime},
		"writes with long pauses":   {every(writeSettleTime+1, 3, written), writeSettleTime + 1 + writeSettleTime},
		"a write, then a rename":    {append(every(1, 1, written), every(settleTime, 1, renamed)...), 1 + settleTime + writeSettleTime},
		"a rename, then a write":    {append(every(1, 1, renamed), every(settleTime-1, 1, written)...), settleTime + writeSettleTime},
		"the folder":                {[]step{{1, "/d", renamed}}, 1 + settleTime},
		"another name, then a loss": {[]step{{1, "/d/other", written}, {time.Minute, "", 0}}, 1 + time.Minute + writeSettleTime},
		"a name that is not clean":  {[]step{{1, "/d/./limits.yaml", renamed}}, 1 + settleTime},
	} {
		synctest.Test(t, func(t *testing.T) {
			events, errs, done := make(chan fsnotify.Event), make(chan error), make(chan struct{})
			w := &fileWatcher{events: &fsnotify.Watcher{Events: events, Errors: errs}, folders: map[string]bool{"/d": true}, names: map[string]bool{"/d/limits.yaml": true}}
			go func() {
				for _, s := range tt.steps {
					select {
					case <-time.After(s.after):
					case <-done:
						return
					}
					if s.name == "" {
						errs <- fsnotify.ErrEventOverflow
						continue
					}
					select {
					case events <- fsnotify.Event{Name: s.name, Op: s.op}:
					case <-done:
						return
					}
				}
			}()
			start := time.Now()
			require.True(t, w.wait(nil, nil), name)
			require.Equal(t, tt.want, time.Since(start), name)
			close(done)
			require.False(t, w.wait(done, nil))
			ticks := make(chan time.Time, 1)
			ticks <- start
			require.True(t, w.wait(nil, ticks))
			require.True(t, w.polled)
		})
	}
	require.EqualValues(t, 50*time.Millisecond, settleTime)
	require.EqualValues(t, time.Second, writeSettleTime)
	require.EqualValues(t, time.Second, maxSettleTime)
}

// TestFileWatcher_watchesLinksAndParents checks the folders and names that lead to a file through
// links, and to one whose folder does not exist.
func TestFileWatcher_watchesLinksAndParents(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	in := func(names ...string) string { return filepath.Join(append([]string{dir}, names...)...) }
	require.NoError(t, os.MkdirAll(in("v1"), 0o700))
	require.NoError(t, os.WriteFile(in("v1", "limits.yaml"), nil, 0o600))
	if err := os.Symlink("v1", in("data")); err != nil {
		t.Skip(err)
	}
	require.NoError(t, os.Symlink(filepath.Join("data", "limits.yaml"), in("limits.yaml")))
	require.Equal(t, []string{in("limits.yaml"), in("limits.yaml"), in("data", "limits.yaml"), in("data"), in("v1", "limits.yaml")}, linkChain(in("limits.yaml")))

	require.NoError(t, os.Symlink("v1", in("lim"))) // a link whose name is the beginning of another
	require.Equal(t, []string{in("limits")}, linkChain(in("limits")))

	w, err := newFileWatcher(in("limits.yaml"))
	require.NoError(t, err)
	defer w.close()
	require.Equal(t, map[string]bool{dir: true, in("data"): true, in("v1"): true}, w.folders)
	require.Equal(t, map[string]bool{in("limits.yaml"): true, in("data"): true, in("data", "limits.yaml"): true, in("v1", "limits.yaml"): true}, w.names)

	missing, err := newFileWatcher(in("none", "below", "limits.yaml"))
	require.NoError(t, err)
	defer missing.close()
	require.Equal(t, map[string]bool{dir: true}, missing.folders)
	require.Equal(t, map[string]bool{in("none"): true, in("none", "below"): true, in("none", "below", "limits.yaml"): true}, missing.names)
	require.NoError(t, os.MkdirAll(in("none", "below"), 0o700))
	missing.refresh()
	require.Equal(t, map[string]bool{in("none", "below"): true}, missing.folders)
}

// TestReload_newKeysGetTheCurrentLimit changes a limit back and forth: a key that claims later
// starts with the limit in force.
func TestReload_newKeysGetTheCurrentLimit(t *testing.T) {
	for _, compact := range []string{"", ", compact: true"} {
		s := Config{Clock: fixedClock(friday)}
		text := func(n int) string {
			return limitWith(fmt.Sprintf("unit: hour, requests_per_unit: %d, burst: %[1]d%s", n, compact))
		}
		set, err := Parse([]byte(text(100)), s)
		require.NoError(t, err)
		for i, n := range []int{100, 10, 100, 20, 100} {
			set = reload(t, set, text(n), s)
			d, err := set.rules[0].limiter.Reserve(t.Context(), throttle.Claim{Key: fmt.Sprint(i), Now: friday, DryRun: true})
			require.NoError(t, err)
			require.EqualValues(t, n, d.Remaining, "%s, reload %d", compact, i)
			require.EqualValues(t, n, d.Limit)
		}
	}
}

// TestActiveLimit_keepsMaxVersions checks how many changes are kept for keys that have not claimed
// since.
func TestActiveLimit_keepsMaxVersions(t *testing.T) {
	g := activeLimitOf(t, "rate_limit: {unit: minute, requests_per_unit: 10}")
	for i := range 3 * maxVersions {
		g.addVersion(&version{number: uint64(i + 2)})
		all := *g.versions.Load()
		require.Len(t, all, min(i+2, maxVersions))
		require.EqualValues(t, i+2, all[len(all)-1].number)
		require.EqualValues(t, len(all)-1, all[len(all)-1].number-all[0].number)
	}
}

// TestActiveLimit_keyOfClosedHoursOpensAgain claims for the same key on two days, with a limit that
// grants nothing between.
func TestActiveLimit_keyOfClosedHoursOpensAgain(t *testing.T) {
	for _, words := range []string{"", "algorithm: token_bucket, ", "algorithm: sliding_log, ", "soft: 20%, "} {
		g := activeLimitOf(t, "rate_limit: {unit: minute, "+words+"requests_per_unit: 0, active: {from: 09:00, to: 17:00, requests_per_unit: 5}}")
		require.True(t, reserveAt(t, g, 5, "09:00:00").OK, words)
		require.False(t, reserveAt(t, g, 1, "18:00:00").OK, words)
		for day := range 3 {
			d, err := g.Reserve(t.Context(), throttle.Claim{Key: "k", Cost: 5, Now: friday.Add(time.Duration(24*(day+1)+9) * time.Hour)})
			require.NoError(t, err)
			require.True(t, d.OK, words)
		}
	}
}

// TestLint_reportsAReplacedLimitOnce lints a limit that two others replace.
func TestLint_reportsAReplacedLimitOnce(t *testing.T) {
	text := "domain: d\nlimits:\n- {name: a, match: /a, rate_limit: {unit: hour, requests_per_unit: 1}}\n"
	for _, name := range []string{"b", "c"} {
		text += "- {name: " + name + ", match: /a, rate_limit: {unit: hour, requests_per_unit: 2, replaces: [{name: a}]}}\n"
	}
	found, err := Lint([]byte(text), Config{})
	require.NoError(t, err)
	n := 0
	for _, f := range found {
		if f.LimitID == "d:a" {
			require.Contains(t, f.Problem, "it never holds: b in line 4 replaces it")
			n++
		}
	}
	require.Equal(t, 1, n, found)
}
