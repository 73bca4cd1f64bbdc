package throttlehttp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// senderKey is a KeyFunc that returns the header User.
func senderKey(r *http.Request) (string, bool) {
	name, ok := r.Header["User"]
	return strings.Join(name, ""), ok
}

// perHour returns a limit of n units per hour for each key.
func perHour(n int64) throttle.Limiter {
	return keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(n)})
}

// send sends a GET request of a user through h; "-" means no user.
func send(h http.Handler, user string) *http.Response {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	if user != "-" {
		r.Header.Set("User", user)
	}
	h.ServeHTTP(w, r)
	return w.Result()
}

// statuses returns the statuses of requests that are sent one after another.
func statuses(h http.Handler, users ...string) (got []int) {
	for _, name := range users {
		got = append(got, send(h, name).StatusCode)
	}
	return got
}

func TestRule_limitsEachKey(t *testing.T) {
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{
		{Limiter: throttle.NewTokenBucket(throttle.PerHour(5))},
		{Limiter: perHour(2), Key: senderKey},
	}}
	h := m.Handler(ok)
	require.Equal(t, []int{200, 200, 429, 200, 200, 429, 200, 429}, statuses(h, "ann", "ann", "ann", "bob", "bob", "bob", "eve", "eve"),
		"two each, five in all, and who is rejected takes nothing from the others")
}

func TestRule_missingKey(t *testing.T) {
	for name, tt := range map[string]struct {
		what throttlehttp.MissingKey
		want []int
	}{
		"they share one key": {throttlehttp.Shared, []int{200, 429, 429, 200}},
		"they are rejected":  {throttlehttp.Reject, []int{403, 403, 403, 200}},
		"they pass":          {throttlehttp.Skip, []int{200, 200, 200, 200}},
	} {
		m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: perHour(1), Key: senderKey, MissingKey: tt.what}}}
		require.Equal(t, tt.want, statuses(m.Handler(ok), "-", "", "-", "ann"), name)
	}
}

func TestRule_rejectSendsABody(t *testing.T) {
	all := new(grantCounter)
	m := &throttlehttp.Middleware{Limiter: all, Rules: []throttlehttp.Rule{{Limiter: perHour(1), Key: senderKey, MissingKey: throttlehttp.Reject}}}
	var seen []string
	m.Trace = &throttlehttp.Trace{Decided: func(_ *http.Request, d throttle.Decision) { seen = append(seen, d.Policy) }}
	r := send(m.Handler(ok), "-")
	body, _ := io.ReadAll(r.Body)
	require.Contains(t, string(body), `"about:blank"`)
	require.Contains(t, string(body), `"Forbidden"`)
	require.Contains(t, string(body), "does not say whose it is")
	require.NotContains(t, r.Header, "Retry-After")
	require.Equal(t, []string{"missing key"}, seen)
	require.Zero(t, *all, "nobody was asked")

	m.OnReject = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, _ := throttlehttp.RejectionFrom(r.Context())
		w.Header().Set("WWW-Authenticate", "Bearer")
		f.Status = http.StatusUnauthorized
		f.ServeHTTP(w, r)
	})
	require.Equal(t, []int{401}, statuses(m.Handler(ok), "-"))
}

// TestRule_rejectionStatesTheLongestWait checks that a rejection reports the longest wait,
// so that another limit does not reject the request after that wait.
func TestRule_rejectionStatesTheLongestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote := new(grantCounter) // does not implement NonBlocking
		for name, tt := range map[string]struct {
			limits []throttle.Limiter
			want   string
		}{
			"the first":    {[]throttle.Limiter{throttle.NewTokenBucket(throttle.PerHour(1)), throttle.NewTokenBucket(throttle.PerMinute(1))}, "3600"},
			"the second":   {[]throttle.Limiter{throttle.NewTokenBucket(throttle.PerMinute(1)), throttle.NewTokenBucket(throttle.PerHour(1))}, "3600"},
			"not known":    {[]throttle.Limiter{throttle.NewTokenBucket(throttle.PerMinute(1)), fixedDecision{}}, "60"},
			"left alone":   {[]throttle.Limiter{throttle.NewTokenBucket(throttle.PerMinute(1)), remote}, "60"},
			"within queue": {[]throttle.Limiter{throttle.NewTokenBucket(throttle.PerMinute(1)), throttle.NewTokenBucket(throttle.PerHour(1))}, "3600"},
		} {
			m := &throttlehttp.Middleware{}
			for _, l := range tt.limits {
				if _, err := l.Reserve(t.Context(), throttle.Claim{}); err != nil {
					t.Fatal(err)
				}
				m.Rules = append(m.Rules, throttlehttp.Rule{Limiter: l})
			}
			if name == "within queue" {
				m.Queue = &queue.Queue{MaxWait: time.Second}
			}
			require.Equal(t, tt.want, serveGet(m.Handler(ok)).Header.Get("Retry-After"), name)
		}
		require.Equal(t, 1, remote.granted)
	})
}

// TestRule_equalWaitsAreOfTheFirstLimit checks which limit a rejection names.
func TestRule_equalWaitsAreOfTheFirstLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		bucket := func(name string) throttle.Limiter {
			return throttle.NewTokenBucket(throttle.Limit{Name: name, Count: 1, Per: time.Minute})
		}
		m := &throttlehttp.Middleware{
			Rules: []throttlehttp.Rule{{Limiter: bucket("a")}, {Limiter: bucket("b")}},
			OnReject: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				f, _ := throttlehttp.RejectionFrom(r.Context())
				got = append(got, f.Decision.Policy)
			}),
		}
		for range 2 {
			serveGet(m.Handler(ok))
		}
		require.Equal(t, []string{"a"}, got)
	})
}

// TestRule_hardSoftElastic checks limits that reject (hard), that report requests over the
// limit (soft), and that allow requests over the limit while there is capacity
// (SoftLimit with CanBorrow).
func TestRule_hardSoftElastic(t *testing.T) {
	one, two := throttle.PerHour(1), throttle.PerHour(2)
	hasCapacity := 2
	for name, tt := range map[string]struct {
		l    throttle.Limiter
		want []string
	}{
		"hard": {throttle.NewTokenBucket(one), []string{"200", "429", "429", "429"}},
		"soft": {throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: throttle.NewTokenBucket(one), Hard: throttle.NewTokenBucket(two)}), []string{"200", "200 over", "429", "429"}},
		"elastic": {throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: throttle.NewTokenBucket(one), CanBorrow: func(throttle.Claim, throttle.Decision) bool {
			hasCapacity--
			return hasCapacity >= 0
		}}), []string{"200", "200 over", "200 over", "429"}},
	} {
		var got []string
		over := ""
		m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: tt.l}}, Trace: &throttlehttp.Trace{
			Decided: func(_ *http.Request, d throttle.Decision) { over = map[bool]string{true: " over"}[d.OverLimit] },
		}}
		h := m.Handler(ok)
		for range tt.want {
			got = append(got, strconv.Itoa(serveGet(h).StatusCode)+over)
		}
		require.Equal(t, tt.want, got, name)
	}
}

func TestRule_costs(t *testing.T) {
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: throttle.NewTokenBucket(throttle.PerHour(10)), Cost: func(r *http.Request) int64 {
		n, _ := strconv.ParseInt(r.Header.Get("User"), 10, 64)
		return n
	}}}}
	h := m.Handler(ok)
	require.Equal(t, []int{200, 429, 200, 200, 429, 503, 429}, statuses(h, "6", "5", "4", "0", "1", "-1", "11"))
	require.Equal(t, "200 //", limitSummary(send(h, "0")), "a rule that does not concern a request says nothing of itself")
}

func TestRule_validatesItsFields(t *testing.T) {
	one := throttlehttp.Rule{Limiter: throttle.AllowAll}
	for name, m := range map[string]*throttlehttp.Middleware{
		"Rules[1] has no Limiter": {Rules: []throttlehttp.Rule{one, {Key: senderKey}}},
		"Rules[0] has no Key":     {Rules: []throttlehttp.Rule{{Limiter: throttle.AllowAll, MissingKey: throttlehttp.Reject}}},
	} {
		func() {
			defer func() { require.Contains(t, fmt.Sprint(recover()), name) }()
			m.Handler(ok)
		}()
	}
}

func TestRule_hiddenIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		everyDialect := headers.XRateLimit | headers.XResetAfter | headers.Draft03 | headers.Draft10
		hidden := throttlehttp.Rule{Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "guesses", Count: 2, Per: time.Hour}), Hidden: true}
		shown := throttlehttp.Rule{Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "shown", Count: 9, Per: time.Hour})}
		var policies []string
		m := &throttlehttp.Middleware{Dialect: everyDialect, Rules: []throttlehttp.Rule{hidden, shown}, Trace: &throttlehttp.Trace{
			Decided: func(_ *http.Request, d throttle.Decision) { policies = append(policies, d.Policy) },
		}}
		h := m.Handler(ok)
		for want := 8; want > 6; want-- {
			r := send(h, "-")
			require.Equal(t, strconv.Itoa(want), r.Header.Get("X-RateLimit-Remaining"))
			require.Equal(t, strconv.Itoa(want), r.Header.Get("RateLimit-Remaining"))
			require.NotContains(t, fmt.Sprint(r.Header), "guesses")
		}
		require.Equal(t, http.Header{"Retry-After": {"1800"}}, rateLimitHeaders(send(h, "-")), "when to come back is told")
		require.Equal(t, []string{"guesses", "guesses", "guesses"}, policies, "the operator sees it")
		m = &throttlehttp.Middleware{Rules: []throttlehttp.Rule{hidden}}
		require.Equal(t, http.Header{"Retry-After": {"1800"}}, rateLimitHeaders(send(m.Handler(ok), "-")))
	})
}

func TestMiddleware_shadowOnlyMarks(t *testing.T) {
	var rejected []string
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Key: senderKey, Hidden: true, Limiter: throttle.NewSoftLimit(throttle.SoftLimitConfig{
		Soft:        perHour(1),
		OnOverLimit: func(c throttle.Claim, _ throttle.Decision) { rejected = append(rejected, c.Key) },
	})}}}
	var over []bool
	m.Trace = &throttlehttp.Trace{Decided: func(_ *http.Request, d throttle.Decision) { over = append(over, d.OverLimit) }}
	require.Equal(t, []int{200, 200, 200}, statuses(m.Handler(ok), "ann", "bob", "ann"))
	require.Equal(t, []string{"ann"}, rejected)
	require.Equal(t, []bool{false, false, true}, over)
}

// TestMiddleware_statesNoLimitOnTrial checks that a limit that rejects nothing is not stated to
// clients, which would obey it, and that a soft limit is.
func TestMiddleware_statesNoLimitOnTrial(t *testing.T) {
	for name, tt := range map[string]struct {
		limiter throttle.Limiter
		want    string
	}{
		"shadow": {throttle.Shadow(perHour(1), nil), "9"},
		"soft":   {throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: perHour(1), Hard: perHour(2)}), "1"},
		"borrow": {throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: perHour(1), CanBorrow: func(throttle.Claim, throttle.Decision) bool { return true }}), "0"},
	} {
		m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: tt.limiter}, {Limiter: perHour(10)}}, Dialect: headers.XRateLimit | headers.Draft10}
		got := send(m.Handler(ok), "-").Header
		require.Equal(t, []string{tt.want}, got["X-Ratelimit-Remaining"], name)
		wantPolicies := 2
		if name == "shadow" {
			wantPolicies = 1
		}
		require.Len(t, strings.Split(strings.Join(got["Ratelimit-Policy"], ","), ","), wantPolicies, name)
	}
}

// TestMiddleware_tracesOverLimit checks that OverLimit of one limit is reported together
// with the state of a tighter one.
func TestMiddleware_tracesOverLimit(t *testing.T) {
	var got throttle.Decision
	m := &throttlehttp.Middleware{Trace: &throttlehttp.Trace{Decided: func(_ *http.Request, d throttle.Decision) { got = d }}, Rules: []throttlehttp.Rule{
		{Limiter: fixedDecision{d: throttle.Decision{OK: true, Limit: 9, Remaining: 8, OverLimit: true, Policy: "soft"}}},
		{Limiter: fixedDecision{d: throttle.Decision{OK: true, Limit: 9, Remaining: 2, Degraded: true, Policy: "tight"}}},
	}}
	serveGet(m.Handler(ok))
	require.Equal(t, throttle.Decision{OK: true, Limit: 9, Remaining: 2, Policy: "tight", OverLimit: true, Degraded: true}, got)
}

// TestRule_failsAsTheMiddlewareDoes checks that errors of limiters are reported to the
// Trace, and that FailClosed decides whether the request is served.
func TestRule_failsAsTheMiddlewareDoes(t *testing.T) {
	down := errors.New("store is down")
	for _, closed := range []bool{false, true} {
		var failed int
		m := &throttlehttp.Middleware{FailClosed: closed, Rules: []throttlehttp.Rule{{Limiter: fixedDecision{err: down}, FinalCost: throttlehttp.OnStatus(200)}},
			Trace: &throttlehttp.Trace{Failed: func(_ *http.Request, err error, open bool) {
				failed++
				require.ErrorIs(t, err, down)
				require.Equal(t, !closed, open)
			}}}
		require.Equal(t, map[bool]int{false: 200, true: 503}[closed], serveGet(m.Handler(ok)).StatusCode)
		require.Equal(t, 1, failed)
	}
}

// A limiter that lacks what it needs is found when the program starts, and not at the first request.
func TestMiddleware_limitersThatCannotWork(t *testing.T) {
	for _, m := range []*throttlehttp.Middleware{
		{Limiter: &keyed.Limiter{}},
		{Rules: []throttlehttp.Rule{{Limiter: &keyed.Limiter{}}}},
	} {
		require.PanicsWithValue(t, "keyed: Limiter: New is nil: set it", func() { m.Handler(http.NotFoundHandler()) })
	}
}
