package throttlehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

var ok = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") })

// serveGet sends a GET request through h without a network.
func serveGet(h http.Handler) *http.Response {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return w.Result()
}

// limitSummary returns the status of r and its headers about limits.
func limitSummary(r *http.Response) string {
	h := r.Header
	return strings.TrimRight(fmt.Sprint(r.StatusCode, " ", h.Get("X-RateLimit-Limit"), "/", h.Get("X-RateLimit-Remaining"),
		"/", h.Get("X-RateLimit-Reset"), " ", h.Get("Retry-After")), " ")
}

func TestMiddleware_writesLimitHeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &throttlehttp.Middleware{Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: 1500 * time.Millisecond, Burst: 3})}
		h := m.Handler(ok)
		start := time.Now()
		for _, step := range []struct {
			at   time.Duration
			want string
		}{
			{0, "200 3/2/2"},
			{0, "200 3/1/3"},
			{0, "200 3/0/5"},
			{0, "429 3/0/5 2"},
			{time.Second, "429 3/0/4 1"},
			{1500 * time.Millisecond, "200 3/0/5"},
			{time.Hour, "200 3/2/2"},
		} {
			time.Sleep(time.Until(start.Add(step.at)))
			require.Equal(t, step.want, limitSummary(serveGet(h)), "at %v", step.at)
		}
	})
}

func TestMiddleware_zeroValueAllowsAll(t *testing.T) {
	require.Equal(t, "200 //", limitSummary(serveGet(new(throttlehttp.Middleware).Handler(ok))))
}

// TestMiddleware_retryAfterIsNeverEarly checks that a request that is repeated after
// Retry-After is not rejected again, at any rate.
func TestMiddleware_retryAfterIsNeverEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 300 {
			l := throttle.Limit{Count: 1 + rnd.Int64N(50), Per: time.Duration(1 + rnd.Int64N(int64(time.Minute))), Burst: 1 + rnd.Int64N(5)}
			h := (&throttlehttp.Middleware{Limiter: throttle.NewTokenBucket(l)}).Handler(ok)
			r := serveGet(h)
			for ; r.StatusCode == http.StatusOK; r = serveGet(h) {
				time.Sleep(time.Duration(rnd.Int64N(int64(l.Per) / l.Count)))
			}
			s, err := strconv.Atoi(r.Header.Get("Retry-After"))
			require.NoError(t, err, l.String())
			time.Sleep(time.Duration(s) * time.Second)
			require.Equal(t, http.StatusOK, serveGet(h).StatusCode, l.String())
		}
	})
}

// A fixedDecision is a limiter that always returns the same decision.
type fixedDecision struct {
	d   throttle.Decision
	err error
}

func (l fixedDecision) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	return l.d, l.err
}
func (l fixedDecision) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {
}

// Traits implements throttle.Limiter.
func (fixedDecision) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

func TestMiddleware_rejection(t *testing.T) {
	for _, tt := range []struct {
		wait          time.Duration
		summary, body string
	}{
		{1, "429 9/0/1 1", "Try again in 1 second."},
		{time.Second, "429 9/0/1 1", "Try again in 1 second."},
		{90 * time.Second, "429 9/0/1 90", "Try again in 90 seconds."},
		{121 * time.Second, "429 9/0/1 121", "Try again in 3 minutes."},
		{7201 * time.Second, "429 9/0/1 7201", "Try again in 3 hours."},
		{5 * time.Hour, "429 9/0/1 18000", "Try again in 5 hours."},
		{72*time.Hour + 1, "429 9/0/1 259201", "Try again in 4 days."},
		{172801 * time.Second, "429 9/0/1 172801", "Try again in 3 days."},
		{0, "429 9/0/1", "Try again later."},
		{throttle.Forever, "429 9/0/1", "This request cannot be taken at any time."},
		{throttle.Forever - 1, "429 9/0/1 999999999", "Try again in 11575 days."},
	} {
		l := fixedDecision{d: throttle.Decision{Policy: "inner-name", Wait: tt.wait, Limit: 9, ResetAfter: time.Second}}
		r := serveGet((&throttlehttp.Middleware{Limiter: l}).Handler(ok))
		require.Equal(t, tt.summary, limitSummary(r))
		body, _ := io.ReadAll(r.Body)
		require.Contains(t, string(body), strconv.Quote(tt.body))
		require.NotContains(t, fmt.Sprint(r.Header, string(body)), "inner-name")
	}
}

func TestMiddleware_onRejectResponds(t *testing.T) {
	m := &throttlehttp.Middleware{
		Limiter:  fixedDecision{d: throttle.Decision{Wait: time.Second, Limit: 9}},
		OnReject: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusTeapot) }),
	}
	r := serveGet(m.Handler(ok))
	require.Equal(t, "418 9/0/0 1", limitSummary(r))
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Empty(t, body)
}

func TestMiddleware_reportsTheTightestLimit(t *testing.T) {
	state := func(limit, left int64, reset time.Duration) throttle.Limiter {
		return fixedDecision{d: throttle.Decision{OK: true, Limit: limit, Remaining: left, ResetAfter: reset}}
	}
	for name, tt := range map[string]struct {
		demands []throttle.Demand
		want    string
	}{
		"fewest left":      {[]throttle.Demand{{Limiter: state(100, 50, 1e9)}, {Limiter: state(10, 5, 2e9)}}, "200 10/5/2"},
		"order is nothing": {[]throttle.Demand{{Limiter: state(10, 5, 2e9)}, {Limiter: state(100, 50, 1e9)}}, "200 10/5/2"},
		"by cost":          {[]throttle.Demand{{Limiter: state(100, 50, 1e9), Cost: 20}, {Limiter: state(10, 5, 2e9)}}, "200 100/50/1"},
		"longer reset":     {[]throttle.Demand{{Limiter: state(10, 5, 1e9)}, {Limiter: state(10, 5, 2e9)}}, "200 10/5/2"},
		"longer reset 1st": {[]throttle.Demand{{Limiter: state(10, 5, 2e9)}, {Limiter: state(10, 5, 1e9)}}, "200 10/5/2"},
		"uncounted":        {[]throttle.Demand{{Limiter: state(0, 0, 0)}, {Limiter: state(10, 5, 2e9)}}, "200 10/5/2"},
	} {
		m := &throttlehttp.Middleware{Limits: func(_ *http.Request, t *queue.Ticket) error {
			for _, d := range tt.demands {
				t.Add(d)
			}
			return nil
		}}
		require.Equal(t, tt.want, limitSummary(serveGet(m.Handler(ok))), name)
	}
}

func TestMiddleware_nestedReportsTheTightestLimit(t *testing.T) {
	perSecond := func(n int64) *throttlehttp.Middleware {
		return &throttlehttp.Middleware{Limiter: throttle.NewTokenBucket(throttle.PerSecond(n))}
	}
	h := perSecond(5).Handler(perSecond(3).Handler(ok))
	require.Equal(t, "200 3/2/1", limitSummary(serveGet(h)))
	h = perSecond(3).Handler(perSecond(5).Handler(ok))
	require.Equal(t, "200 3/2/1", limitSummary(serveGet(h)))
	h = perSecond(4).Handler((&throttlehttp.Middleware{Limiter: fixedDecision{d: throttle.Decision{OK: true, Remaining: 3, Limit: 7}}}).Handler(ok))
	require.Equal(t, "200 4/3/1", limitSummary(serveGet(h)), "of equal ones the outer one")
	h = perSecond(1).Handler((&throttlehttp.Middleware{Limiter: fixedDecision{d: throttle.Decision{Wait: 1, Limit: 7}}}).Handler(ok))
	require.Equal(t, "429 7/0/0 1", limitSummary(serveGet(h)), "who rejects has the word")
}

// TestMiddleware_listsEachLimitOnce checks the header of all limits, also of nested
// middlewares, and that other dialects do not have it.
func TestMiddleware_listsEachLimitOnce(t *testing.T) {
	state := func(name string, limit int64) throttle.Limiter {
		return fixedDecision{d: throttle.Decision{OK: true, Policy: name, Limit: limit, Remaining: limit - 1, ResetAfter: time.Second}}
	}
	with := func(d headers.Dialect, of ...throttle.Limiter) *throttlehttp.Middleware {
		m := &throttlehttp.Middleware{Dialect: d}
		for _, l := range of {
			m.Rules = append(m.Rules, throttlehttp.Rule{Limiter: l})
		}
		return m
	}
	a, b, free := state("a", 10), state("b", 20), state("free", 0)
	for name, c := range map[string]struct {
		h    http.Handler
		want http.Header
	}{
		"one": {with(headers.Draft10, a).Handler(ok), http.Header{"Ratelimit": {`"a";r=9;t=1`}, "Ratelimit-Policy": {`"a";q=10`}}},
		"two": {with(headers.Draft10, a, b, free).Handler(ok), http.Header{"Ratelimit": {`"a";r=9;t=1, "b";r=19;t=1`}, "Ratelimit-Policy": {`"a";q=10, "b";q=20`}}},
		"nested": {with(headers.Draft10, a).Handler(with(headers.Draft10, b).Handler(ok)),
			http.Header{"Ratelimit": {`"a";r=9;t=1`, `"b";r=19;t=1`}, "Ratelimit-Policy": {`"a";q=10`, `"b";q=20`}}},
		"none":               {with(headers.Draft10, free).Handler(ok), http.Header{}},
		"two, of one header": {with(headers.XRateLimit, b, a).Handler(ok), http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Reset": {"1"}}},
		"one, of one header": {with(headers.XRateLimit, a).Handler(ok), http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Reset": {"1"}}},
		"two, of the default": {with(0, b, a).Handler(ok), http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Reset": {"1"},
			"X-Ratelimit-Reset-After": {"1.000"}}},
	} {
		require.Equal(t, c.want, rateLimitHeaders(serveGet(c.h)), name)
	}
}

// TestMiddleware_servesOnceWhenAStoreIsDown checks the response to a request for which a
// limiter fails.
func TestMiddleware_servesOnceWhenAStoreIsDown(t *testing.T) {
	for closed, want := range map[bool]string{false: "200 ok", true: "503 "} {
		m := &throttlehttp.Middleware{Limiter: fixedDecision{err: errors.New("down")}, FailClosed: closed}
		r := serveGet(m.Handler(ok))
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		if closed {
			require.NotContains(t, string(body), "ok")
			body = nil
		}
		require.Equal(t, want, fmt.Sprint(r.StatusCode, " ", string(body)))
	}
}

func TestMiddleware_writesDialects(t *testing.T) {
	perMinute := throttle.Limit{Name: "minute", Count: 60, Per: time.Minute}
	perHour := throttle.Limit{Name: "hour", Count: 100, Per: time.Hour, Burst: 70}
	m := &throttlehttp.Middleware{
		Dialect: headers.XRateLimit | headers.Draft03 | headers.Draft10 | headers.XRetryAfter,
		Limits: func(_ *http.Request, t *queue.Ticket) error {
			t.Add(throttle.Demand{Limiter: throttle.NewTokenBucket(perHour)})
			t.Add(throttle.Demand{Limiter: throttle.NewTokenBucket(perMinute), Cost: 20})
			return nil
		},
	}
	inner := &throttlehttp.Middleware{Dialect: headers.Draft10, Limiter: fixedDecision{d: throttle.Decision{Policy: "odd", Limit: 7, Wait: 1, Per: 1e9 + 1}}}
	require.Equal(t, http.Header{
		"X-Ratelimit-Limit":     {"60"},
		"X-Ratelimit-Remaining": {"40"},
		"X-Ratelimit-Reset":     {"20"},
		"Ratelimit-Limit":       {"60, 60;w=60"},
		"Ratelimit-Remaining":   {"40"},
		"Ratelimit-Reset":       {"20"},
		"Ratelimit":             {`"hour";r=69;t=36, "minute";r=40;t=20`, `"odd";r=0;t=0`},
		"Ratelimit-Policy":      {`"hour";q=70;w=2520, "minute";q=60;w=60`, `"odd";q=7`}, // 70 units are restored in 42 minutes
		"Retry-After":           {"1"},
	}, rateLimitHeaders(serveGet(m.Handler(inner.Handler(ok)))))

	m = &throttlehttp.Middleware{Dialect: headers.Draft03 | headers.XRetryAfter, Limiter: inner.Limiter}
	require.Equal(t, http.Header{
		"Ratelimit-Limit":         {"7"},
		"Ratelimit-Remaining":     {"0"},
		"Ratelimit-Reset":         {"0"},
		"Retry-After":             {"1"},
		"X-Ratelimit-Retry-After": {"1"},
	}, rateLimitHeaders(serveGet(m.Handler(ok))))
}

func TestMiddleware_reportsTheWindow(t *testing.T) {
	limit := throttle.Limit{Count: 10, Per: 20 * time.Second}
	for _, l := range []throttle.Limiter{
		throttle.NewTokenBucket(limit),
		throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: limit}),
		throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 10, Per: 20 * time.Second}),
		throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: limit}),
		throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: limit}),
		throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: limit, Parts: 4}),
	} {
		r := serveGet((&throttlehttp.Middleware{Limiter: l, Dialect: headers.Draft03}).Handler(ok))
		require.Equal(t, "10, 10;w=20", r.Header.Get("RateLimit-Limit"), "%T", l)
	}
	burst := throttle.RefillBucketConfig{Limit: throttle.Limit{Count: 4, Per: time.Minute, Burst: 10}}
	r := serveGet((&throttlehttp.Middleware{Limiter: throttle.NewRefillBucket(burst), Dialect: headers.Draft03}).Handler(ok))
	require.Equal(t, "10, 10;w=180", r.Header.Get("RateLimit-Limit"), "three refills of four")
}

// rateLimitHeaders returns the headers of r that describe limits.
func rateLimitHeaders(r *http.Response) http.Header {
	h := r.Header.Clone()
	for _, other := range []string{"Content-Type", "X-Content-Type-Options", "Content-Length", "Cache-Control", "Vary"} {
		h.Del(other)
	}
	return h
}

func TestMiddleware_noDecision(t *testing.T) {
	down := errors.New("store 10.0.0.7 is down")
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tt := range map[string]struct {
		err    error
		ctx    context.Context
		closed bool
		want   int
	}{
		"open":                {down, context.Background(), false, http.StatusOK},
		"closed":              {down, context.Background(), true, http.StatusServiceUnavailable},
		"client gave up":      {context.Canceled, gone, false, http.StatusServiceUnavailable},
		"cost by the client":  {throttle.ErrCost, context.Background(), false, http.StatusServiceUnavailable},
		"limiter's own limit": {context.DeadlineExceeded, context.Background(), false, http.StatusOK},
	} {
		var failed []error
		m := &throttlehttp.Middleware{Limiter: fixedDecision{err: tt.err}, FailClosed: tt.closed, Trace: &throttlehttp.Trace{
			Failed: func(r *http.Request, err error, open bool) {
				failed = append(failed, err)
				require.Equal(t, tt.want == http.StatusOK, open, name)
			},
		}}
		w := httptest.NewRecorder()
		m.Handler(ok).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil).WithContext(tt.ctx))
		require.Equal(t, tt.want, w.Code, name)
		require.NotContains(t, w.Body.String(), "10.0.0.7", name)
		require.Equal(t, []error{tt.err}, failed, name)
	}
}

func TestMiddleware_tracesDecisions(t *testing.T) {
	var seen []bool
	m := &throttlehttp.Middleware{
		Limiter: throttle.NewTokenBucket(throttle.PerHour(2)),
		Trace:   &throttlehttp.Trace{Decided: func(r *http.Request, d throttle.Decision) { seen = append(seen, d.OK) }},
	}
	h := m.Handler(ok)
	for range 3 {
		serveGet(h)
	}
	require.Equal(t, []bool{true, true, false}, seen)
}

// TestMiddleware_anErrorOfLimitsRejects checks that a request is rejected if Limits returns an
// error, that nothing is claimed, and that Trace.Failed gets the error.
func TestMiddleware_anErrorOfLimitsRejects(t *testing.T) {
	l, errUnknown := new(grantCounter), errors.New("unknown tenant")
	var failed []error
	m := &throttlehttp.Middleware{
		Limiter: l,
		Limits:  func(*http.Request, *queue.Ticket) error { return errUnknown },
		Trace:   &throttlehttp.Trace{Failed: func(_ *http.Request, err error, open bool) { failed = append(failed, err); require.False(t, open) }},
	}
	resp := serveGet(m.Handler(ok))
	require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	require.Equal(t, []error{errUnknown}, failed)
	require.Equal(t, grantCounter{}, *l)
}

// TestMiddleware_anyNumberOfLimits sends requests through a Limiter, Rules and Limits that are together more than
// fit in the memory that is used again. Each limit counts each request once, and those that one of them
// rejects not at all. (Review M9: with four Rules and Limits each request that Limits applied to got a 503.)
func TestMiddleware_anyNumberOfLimits(t *testing.T) {
	for _, rules := range []int{0, 1, 4, 5, 20} {
		for _, limits := range []int{0, 1, 20} {
			var all []throttle.Limiter
			day := func(n int64) throttle.Limiter {
				return throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: n, Per: 24 * time.Hour})
			}
			nine := func() throttle.Limiter {
				all = append(all, day(9))
				return all[len(all)-1]
			}
			m := &throttlehttp.Middleware{Limiter: nine()}
			for range rules {
				m.Rules = append(m.Rules, throttlehttp.Rule{Limiter: nine()})
			}
			var own []throttle.Demand
			for range limits {
				own = append(own, throttle.Demand{Limiter: nine()})
			}
			own = append(own, throttle.Demand{Limiter: day(3)})
			m.Limits = func(_ *http.Request, tk *queue.Ticket) error {
				for _, d := range own {
					tk.Add(d)
				}
				return nil
			}
			h := m.Handler(ok)
			for i := range 5 {
				want := http.StatusOK
				if i >= 3 {
					want = http.StatusTooManyRequests
				}
				require.Equal(t, want, serveGet(h).StatusCode, "%d rules, %d of Limits, request %d", rules, limits, i)
			}
			for _, l := range all {
				d, err := l.Reserve(t.Context(), throttle.Claim{DryRun: true})
				require.NoError(t, err)
				require.EqualValues(t, 9-3, d.Remaining)
			}
		}
	}
}

// TestMiddleware_limitsMayAssignDemands checks that a slice which Limits assigns, and which all requests share, is
// not changed when the request ends.
func TestMiddleware_limitsMayAssignDemands(t *testing.T) {
	shared := append(make([]throttle.Demand, 0, 8), throttle.Demand{Limiter: throttle.AllowAll, Cost: 3})
	before := slices.Clone(shared[:8])
	m := &throttlehttp.Middleware{Limits: func(_ *http.Request, tk *queue.Ticket) error {
		tk.Demands = shared
		return nil
	}}
	h := m.Handler(ok)
	for range 3 {
		require.Equal(t, http.StatusOK, serveGet(h).StatusCode)
		require.Equal(t, before, shared[:8])
	}
}
