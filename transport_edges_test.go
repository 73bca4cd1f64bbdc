package heed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// TestTransport_leavesTimeForTheResponse sends requests to a server that takes 4 s. A request
// that waits 4.5 s for a limit is sent only if its response can arrive before its deadline.
func TestTransport_leavesTimeForTheResponse(t *testing.T) {
	for _, tt := range []struct {
		timeout time.Duration
		sent    bool
	}{{8 * time.Second, false}, {8400 * time.Millisecond, false}, {8600 * time.Millisecond, true}, {time.Minute, true}} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(respondAfter(4*time.Second, 200))
			tr := &Transport{Base: s, Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: 5 * time.Second}), Quota: &quota.Tracker{}}
			for range 2 { // the latency of the second one is measured, because it waits
				resp, err := get(t, tr)
				require.NoError(t, err)
				resp.Body.Close()
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				if resp, err := get(t, tr); assert.NoError(t, err) {
					resp.Body.Close()
				}
			})
			time.Sleep(1500 * time.Millisecond)
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), tt.timeout)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.test/items", nil)
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			if tt.sent {
				require.NoError(t, err)
				resp.Body.Close()
				require.Equal(t, 8500*time.Millisecond, time.Since(start))
			} else {
				require.ErrorIs(t, err, throttle.ErrRejected)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Zero(t, time.Since(start))
			}
			wg.Wait()
			if tt.sent {
				require.Equal(t, 4, s.sent())
			} else {
				require.Equal(t, 3, s.sent())
			}
		})
	}
}

// TestTransport_countsCallsForTheBudget checks which calls allow further retries.
func TestTransport_countsCallsForTheBudget(t *testing.T) {
	limit := func() throttle.Limiter { return throttle.NewTokenBucket(throttle.PerSecond(1000)) }
	for name, tt := range map[string]struct {
		limiter  throttle.Limiter
		calls    int
		noRetry  bool
		requests int64
	}{
		"with a limit":                {limit(), 7, false, 7},
		"with a limit, NoRetry":       {limit(), 7, true, 0},
		"without limits, no batch":    {nil, 15, false, 0},
		"without limits, one batch":   {nil, 16, false, 16},
		"without limits, two batches": {nil, 40, false, 32},
		"without limits, NoRetry":     {nil, 40, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &backoff.Budget{Ratio: 1, MinPerSecond: -1}
			tr := &Transport{Base: newScript(200), Limiter: tt.limiter, Quota: &quota.Tracker{Mode: quota.Disabled}, Retry: &RetryPolicy{Budget: b}}
			for range tt.calls {
				req, err := http.NewRequestWithContext(WithOptions(t.Context(), RequestOptions{NoRetry: tt.noRetry}), http.MethodGet, "http://api.test/", nil)
				require.NoError(t, err)
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				resp.Body.Close()
			}
			require.EqualValues(t, tt.requests, b.Snapshot(time.Now()).Requests, name)
		})
	}
	synctest.Test(t, func(t *testing.T) { // a retry is not another request
		b := &backoff.Budget{Ratio: 1, MinPerSecond: 10}
		tr := &Transport{Base: newScript(500, 500, 200), Limiter: limit(), Quota: &quota.Tracker{Mode: quota.Disabled}, Retry: &RetryPolicy{Budget: b}}
		resp, err := get(t, tr)
		require.NoError(t, err)
		resp.Body.Close()
		require.EqualValues(t, 1, b.Snapshot(time.Now()).Requests)
	})
}

// TestTransport_countsCallsForTheBudgetOfTheirPolicy checks that a call without limits counts for the
// Budget of the policy that RetryFor returns for it, and for no other.
func TestTransport_countsCallsForTheBudgetOfTheirPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budgets := map[string]*backoff.Budget{"/a": {}, "/b": {}, "": {}}
		tr := &Transport{Base: newScript(200), Quota: &quota.Tracker{Mode: quota.Disabled}, Retry: &RetryPolicy{Budget: budgets[""]}}
		tr.RetryFor = func(r *http.Request) *RetryPolicy {
			if r.URL.Path == "/shared" {
				return &RetryPolicy{MaxAttempts: 2} // with the Budget of Retry
			}
			return &RetryPolicy{Budget: budgets[r.URL.Path]}
		}
		for range 32 {
			for _, path := range []string{"/a", "/a", "/b", "/shared"} {
				req := request(t, "GET", "")
				req.URL.Path = path
				resp, err := tr.RoundTrip(req)
				require.NoError(t, err)
				resp.Body.Close()
			}
		}
		for path, want := range map[string]int64{"/a": 64, "/b": 32, "": 32} {
			require.Equal(t, want, budgets[path].Snapshot(time.Now()).Requests, path)
		}
	})
}

// TestTransport_budgetDoesNotLimitWhatTheServerRejects checks that retries after a 429, and those at a
// time that the server stated, are neither counted nor rejected by a Budget that allows none.
func TestTransport_budgetDoesNotLimitWhatTheServerRejects(t *testing.T) {
	stated := []string{"Retry-After", "1"}
	for name, tt := range map[string]struct {
		step any
		sent int
	}{
		"429, stated":         {response{429, "", stated}, 3},
		"429":                 {429, 3},
		"503, stated":         {response{503, "", stated}, 3},
		"503":                 {503, 1},
		"a failed connection": {errBroken, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			policy := threeAttempts()
			policy.Budget = &backoff.Budget{Ratio: -1, MinPerSecond: -1}
			s := newScript(tt.step)
			if _, err := get(t, &Transport{Base: s, Retry: policy}); err != nil {
				require.ErrorIs(t, err, ErrRetryBudget, name)
			}
			require.Equal(t, tt.sent, s.sent(), name)
			require.Zero(t, policy.Budget.Snapshot(time.Now()).Retried, name)
		})
	}
}

// TestTransport_resetOfARejectionIsAWait checks which reset times of a 429 without Retry-After
// are waits that RetryPolicy.MaxServerWait forbids.
func TestTransport_resetOfARejectionIsAWait(t *testing.T) {
	for _, tt := range []struct {
		headers string
		sent    int
	}{
		{"", 2},
		{"X-RateLimit-Reset: 300", 1},
		{"X-RateLimit-Limit: 10, X-RateLimit-Reset: 300", 1},
		{"X-RateLimit-Limit: 10, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 300", 1},
		{"X-RateLimit-Limit: 10, X-RateLimit-Remaining: 5, X-RateLimit-Reset: 300", 2},
		{"X-RateLimit-Limit: 10, X-RateLimit-Remaining: 1, X-RateLimit-Reset: 300", 2},
		{"X-RateLimit-Limit: 10, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 60", 2},
		{"X-RateLimit-Limit: 10, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 61", 1},
		{"X-RateLimit-Limit: 10, X-RateLimit-Remaining: 0, X-RateLimit-Reset: 20", 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			var pairs []string
			for _, field := range strings.Split(tt.headers, ", ") {
				if name, value, ok := strings.Cut(field, ": "); ok {
					pairs = append(pairs, name, value)
				}
			}
			s := newScript(response{429, "", pairs}, 200)
			resp, err := get(t, &Transport{Base: s, Quota: &quota.Tracker{Mode: quota.Disabled}, Retry: &RetryPolicy{MaxServerWait: time.Minute}})
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, tt.sent, s.sent(), tt.headers)
		})
	}
}

// TestTrace_oneAttemptHookIsEnough checks the times of AttemptStart and AttemptDone without the
// other one.
func TestTrace_oneAttemptHookIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var got []string
		for _, tr := range []*Trace{
			{AttemptStart: func(_ *http.Request, i AttemptInfo) { got = append(got, fmt.Sprint("start ", i.Sent.Sub(start))) }},
			{AttemptDone: func(_ *http.Request, i AttemptInfo) {
				got = append(got, fmt.Sprint("done ", i.Sent.Sub(start), " ", i.Duration))
			}},
		} {
			resp, err := get(t, &Transport{Base: newScript(respondAfter(time.Second, 200)), Trace: tr})
			require.NoError(t, err)
			resp.Body.Close()
		}
		require.Equal(t, []string{"start 0s", "done 1s 1s"}, got)
	})
}

// A closableBase counts calls of CloseIdleConnections.
type closableBase struct {
	http.RoundTripper
	closed int
}

func (b *closableBase) CloseIdleConnections() { b.closed++ }

func TestTransport_forwardsToTheBaseBeforeTheFirstRequest(t *testing.T) {
	b := new(closableBase)
	(&Transport{Base: b}).CloseIdleConnections()
	require.Equal(t, 1, b.closed)
}

// TestTransport_attemptTimeoutOfABaseThatIgnoresIt checks responses that arrive after
// AttemptTimeout from a Base that ignores the context.
func TestTransport_attemptTimeoutOfABaseThatIgnoresIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			body io.ReadCloser
			took time.Duration
			ok   bool
		}{
			{io.NopCloser(strings.NewReader("text")), 500 * time.Millisecond, true},
			{io.NopCloser(strings.NewReader("text")), 2 * time.Second, false},
			{http.NoBody, 2 * time.Second, true},
		} {
			base := baseFunc(func(r *http.Request) (*http.Response, error) {
				time.Sleep(tt.took)
				return &http.Response{StatusCode: 200, Body: tt.body, Header: http.Header{}, Request: r}, nil
			})
			resp, err := get(t, &Transport{Base: base, Retry: &RetryPolicy{MaxAttempts: 1, AttemptTimeout: time.Second}})
			if !tt.ok {
				require.ErrorIs(t, err, errAttemptTimeout)
				continue
			}
			require.NoError(t, err)
			if tt.body == http.NoBody {
				require.Empty(t, text(t, resp))
			} else {
				require.Equal(t, "text", text(t, resp))
			}
		}
	})
}

func TestRetryable_table(t *testing.T) {
	const always, idempotent, never = "always", "idempotent", "never"
	for _, tt := range []struct {
		status  int
		headers string
		want    string
	}{
		{200, "", never}, {304, "", never}, {400, "", never}, {404, "", never}, {408, "", idempotent}, {425, "", idempotent}, {429, "", always},
		{500, "", idempotent}, {501, "", never}, {502, "", idempotent}, {503, "", idempotent}, {503, "Retry-After: 1", always}, {504, "", idempotent},
		{519, "", never}, {520, "", idempotent}, {524, "", idempotent}, {525, "", never}, {529, "", always},
		{403, "", never}, {403, "Retry-After: 1", always}, {500, "Retry-After: 1", idempotent},
		{404, "X-Should-Retry: true", always}, {429, "X-Should-Retry: false", never}, {500, "Stripe-Should-Retry: false", never},
		{400, "Stripe-Should-Retry: true", always}, {200, "X-Should-Retry: true", never}, {500, "X-Should-Retry: maybe", idempotent},
		{500, "Grpc-Retry-Pushback-Ms: -1", never}, {500, "Grpc-Retry-Pushback-Ms: 0", idempotent}, {500, "Grpc-Retry-Pushback-Ms: 5", idempotent},
		{500, "Grpc-Retry-Pushback-Ms: x", idempotent},
	} {
		h := http.Header{}
		if name, value, ok := strings.Cut(tt.headers, ": "); ok {
			h.Set(name, value)
		}
		resp := &http.Response{StatusCode: tt.status, Header: h}
		get, post := &http.Request{Method: http.MethodGet, Header: http.Header{}}, &http.Request{Method: http.MethodPost, Header: http.Header{}}
		require.Equal(t, tt.want != never, Retryable(get, resp, nil), "GET %d %s", tt.status, tt.headers)
		require.Equal(t, tt.want == always, Retryable(post, resp, nil), "POST %d %s", tt.status, tt.headers)
		for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
			keyed := &http.Request{Method: http.MethodPost, Header: http.Header{name: {"k"}}}
			require.Equal(t, tt.want != never, Retryable(keyed, resp, nil), "%s %d %s", name, tt.status, tt.headers)
		}
		option := post.WithContext(WithOptions(t.Context(), RequestOptions{Idempotent: true}))
		require.Equal(t, tt.want != never, Retryable(option, resp, nil), "option %d %s", tt.status, tt.headers)
		require.False(t, Retryable(get.WithContext(WithOptions(t.Context(), RequestOptions{NoRetry: true})), resp, nil))
		forbidden := classifyResponse(resp, throttle.Accepted, new(headers.Report)) == retryForbidden
		require.Equal(t, tt.headers != "" && tt.want == never && tt.status >= 400, forbidden, "%d %s", tt.status, tt.headers)
	}
	get := &http.Request{Method: http.MethodGet}
	require.False(t, Retryable(get, nil, nil))
	require.True(t, Retryable(get, nil, io.ErrUnexpectedEOF))
	require.True(t, Retryable(get, nil, errConnRefused))
	require.False(t, Retryable(get, nil, context.Canceled))
	for status, want := range map[int]retryClass{399: retryIdempotent, 400: retryAlways, 499: retryAlways, 501: retryNever} {
		require.Equal(t, want, classifyResponse(&http.Response{StatusCode: status}, throttle.Throttled, new(headers.Report)), status)
	}
}

func TestRetryPolicy_waitsWithDefaults(t *testing.T) {
	for d, want := range map[time.Duration][2]time.Duration{
		0: {10 * time.Minute, 15 * time.Minute}, 1: {1, 1}, -1: {throttle.Forever, throttle.Forever}, time.Hour: {time.Hour, time.Hour},
	} {
		p := (&RetryPolicy{MaxServerWait: d, MaxElapsed: d}).withDefaults(nil)
		require.Equal(t, want, [2]time.Duration{p.MaxServerWait, p.MaxElapsed}, d)
	}
}

// A stoppedClock does not advance, and its timers do not fire.
type stoppedClock struct{ now time.Time }

func (c stoppedClock) Now() time.Time                     { return c.now }
func (stoppedClock) After(time.Duration) <-chan time.Time { return nil }

// TestTransport_clockIsForWaitsAndDelays checks which times Transport.Clock measures: with a clock that stands still, delays do
// not end, and the times that Clock names as those of the system clock do.
func TestTransport_clockIsForWaitsAndDelays(t *testing.T) {
	hangs := baseFunc(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	})
	taken := func() throttle.Limiter {
		l := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
		l.Reserve(t.Context(), throttle.Claim{})
		return l
	}
	free := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
	slow := func(*http.Request, int) error {
		time.Sleep(1500 * time.Millisecond)
		d, err := free.Reserve(t.Context(), throttle.Claim{DryRun: true})
		if err == nil && !d.OK {
			err = errors.New("BeforeSend holds its unit")
		}
		return err
	}
	for name, tt := range map[string]struct {
		tr   *Transport
		opts RequestOptions
		took time.Duration
		want error
	}{
		"the delay before a retry": {&Transport{Base: newScript(500)}, RequestOptions{}, time.Hour, context.DeadlineExceeded},
		"a stated wait": {&Transport{Base: newScript(200), Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Second})},
			RequestOptions{}, time.Hour, context.DeadlineExceeded},
		"AttemptTimeout": {&Transport{Base: hangs, Retry: &RetryPolicy{MaxAttempts: 1, AttemptTimeout: time.Second}}, RequestOptions{}, time.Second, errAttemptTimeout},
		"MaxWait":        {&Transport{Base: newScript(200), Limiter: taken()}, RequestOptions{MaxWait: time.Second}, time.Second, ErrMaxWait},
		"a deadline":     {&Transport{Base: newScript(200), Limiter: taken()}, RequestOptions{}, time.Hour, context.DeadlineExceeded},
		"BeforeSend":     {&Transport{Base: newScript(200), Limiter: free, Retry: &RetryPolicy{BeforeSend: slow}}, RequestOptions{}, 1500 * time.Millisecond, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.tr.Clock = stoppedClock{time.Now()}
				if name == "a stated wait" {
					_, err := get(t, tt.tr)
					require.NoError(t, err)
				}
				ctx, cancel := context.WithTimeout(WithOptions(t.Context(), tt.opts), time.Hour)
				defer cancel()
				start := time.Now()
				_, err := tt.tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
				require.Equal(t, tt.took, time.Since(start), "%v", err)
				require.ErrorIs(t, err, tt.want)
			})
		})
	}
}
