package heed

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// TestTransport_retryForChoosesThePolicy checks that RetryFor returns the policy of each
// request, and that Retry applies if it returns nil.
func TestTransport_retryForChoosesThePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reports := &RetryPolicy{MaxAttempts: 6, Backoff: backoff.Constant(time.Second)}
		tr := &Transport{
			Retry: &RetryPolicy{MaxAttempts: 2, Backoff: backoff.Constant(time.Minute)},
			RetryFor: func(r *http.Request) *RetryPolicy {
				switch {
				case strings.HasPrefix(r.URL.Path, "/reports"):
					return reports
				case r.URL.Path == "/once":
					return &RetryPolicy{MaxAttempts: 1}
				}
				return nil
			},
		}
		for path, want := range map[string]struct {
			sent int
			took time.Duration
		}{"/reports/1": {6, 5 * time.Second}, "/once": {1, 0}, "/items": {2, time.Minute}} {
			s := newScript(500)
			tr := &Transport{Base: s, Retry: tr.Retry, RetryFor: tr.RetryFor}
			req := request(t, "GET", "")
			req.URL.Path = path
			_, err := tr.RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, want.sent, s.sent(), path)
			require.Equal(t, want.took, time.Since(s.start), path)
		}
	})
}

// TestTransport_retryForSharesTheBudget checks that a policy of RetryFor without a Budget
// shares that of Retry, so that one budget limits all retries of the Transport.
func TestTransport_retryForSharesTheBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(500)
		budget := &backoff.Budget{MinPerSecond: 1e-9}
		for budget.Withdraw(time.Now()) {
		}
		_, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{Budget: budget}, RetryFor: func(*http.Request) *RetryPolicy { return &RetryPolicy{} }})
		require.NoError(t, err)
		require.Equal(t, 1, s.sent())
	})
}

// TestRetryPolicy_idempotentAddsToTheRules checks that RetryPolicy.Idempotent extends the
// rules: it is called only for requests that are not idempotent by them.
func TestRetryPolicy_idempotentAddsToTheRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		r := &RetryPolicy{Backoff: backoff.Constant(0), Idempotent: func(r *http.Request) bool {
			asked++
			return r.URL.Path == "/search"
		}}
		for _, tt := range []struct {
			method, path string
			sent         int
		}{{"POST", "/search", 5}, {"POST", "/orders", 1}, {"GET", "/orders", 5}} {
			s := newScript(500)
			asked = 0
			req := request(t, tt.method, "")
			req.URL.Path = tt.path
			_, err := (&Transport{Base: s, Retry: r}).RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, tt.sent, s.sent(), tt.method+" "+tt.path)
			require.Equal(t, tt.method == "GET", asked == 0)
		}
	})
}

// TestTransport_aPanicOfRetryForClosesTheBody checks that the request body is closed if
// RetryFor panics.
func TestTransport_aPanicOfRetryForClosesTheBody(t *testing.T) {
	body := &opaque{Reader: strings.NewReader("x")}
	tr := &Transport{Base: newScript(200), RetryFor: func(*http.Request) *RetryPolicy { panic("hook") }}
	require.PanicsWithValue(t, "hook", func() { tr.RoundTrip(put(t, body, 1)) })
	require.Equal(t, 1, body.closed)
}

// TestTransport_noWaitFailsInsteadOfWaiting checks that a request with NoWait fails
// immediately where another would wait: for a configured limit, for a limit of the
// server, behind other waiters, before a retry, and for StartJitter.
func TestTransport_noWaitFailsInsteadOfWaiting(t *testing.T) {
	noWait := func(t *testing.T, tr *Transport) (*http.Response, error) {
		return tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{NoWait: true, MaxWait: time.Hour})))
	}
	rejects := func(t *testing.T, tr *Transport) {
		t.Helper()
		start := time.Now()
		_, err := noWait(t, tr)
		require.ErrorIs(t, err, ErrMaxWait)
		require.ErrorContains(t, err, "RequestOptions.NoWait")
		var g *GiveUpError
		require.ErrorAs(t, err, &g)
		require.Zero(t, time.Since(start))
	}
	grants := func(t *testing.T, tr *Transport) {
		t.Helper()
		start := time.Now()
		resp, err := noWait(t, tr)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Zero(t, time.Since(start))
	}
	for name, test := range map[string]func(*testing.T){
		"a limit of our own": func(t *testing.T) {
			tr := &Transport{Base: newScript(200), Limiter: throttle.NewTokenBucket(throttle.PerMinute(1))}
			grants(t, tr)
			rejects(t, tr)
			time.Sleep(time.Minute)
			grants(t, tr)
		},
		"a remote limiter": func(t *testing.T) { rejects(t, &Transport{Base: newScript(200), Limiter: remote{}}) },
		"places in use": func(t *testing.T) {
			slots := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
			tr := &Transport{Base: newScript(200), Limiter: slots}
			resp, err := noWait(t, tr)
			require.NoError(t, err)
			rejects(t, tr)
			resp.Body.Close()
			resp, err = noWait(t, tr)
			require.NoError(t, err)
			resp.Body.Close()
		},
		"a quota of the server": func(t *testing.T) {
			s := newScript(response{200, "", []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "30"}})
			tr := &Transport{Base: s, Quota: &quota.Tracker{NeverTest: true}} // otherwise the next request tests the statement
			grants(t, tr)
			rejects(t, tr)
		},
		"others in line": func(t *testing.T) {
			tr := &Transport{Base: newScript(200), Limiter: throttle.NewTokenBucket(throttle.PerMinute(1))}
			grants(t, tr)
			done := make(chan struct{})
			go func() {
				defer close(done)
				tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{Cost: 1})))
			}()
			synctest.Wait()
			rejects(t, tr)
			<-done
		},
		"Splay": func(t *testing.T) {
			_, err := noWait(t, &Transport{Base: newScript(200), StartJitter: time.Hour, StartSeed: deviceSeed})
			require.ErrorIs(t, err, ErrMaxWait)
		},
		"a pause between attempts": func(t *testing.T) {
			s := newScript(500, 200)
			resp, err := noWait(t, &Transport{Base: s, Retry: &RetryPolicy{Backoff: backoff.Constant(time.Second)}})
			require.NoError(t, err)
			require.Equal(t, 500, resp.StatusCode)
			info, _ := InfoFrom(resp)
			require.ErrorIs(t, info.StopReason, ErrMaxWait)
			require.Zero(t, time.Since(s.start))
		},
		"a retry without a delay": func(t *testing.T) {
			grants(t, &Transport{Base: newScript(500, 200), Retry: &RetryPolicy{Backoff: backoff.Constant(0)}})
		},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// The delays of the zero RetryPolicy are those of its documentation, and persist for at least ten seconds.
func TestRetryPolicy_defaultDelays(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			var sent []time.Time
			_, err := get(t, &Transport{Base: baseFunc(func(*http.Request) (*http.Response, error) {
				sent = append(sent, time.Now())
				return newResponse(500, ""), nil
			})})
			require.NoError(t, err)
			require.Len(t, sent, 5)
			for i, longest := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond, 4500 * time.Millisecond, 13500 * time.Millisecond} {
				d := sent[i+1].Sub(sent[i])
				require.GreaterOrEqual(t, d, longest/2)
				require.LessOrEqual(t, d, longest)
			}
		})
	}
}

// Near the deadline of the context a default delay leaves half of the time for the attempt, but is not shorter than the one
// before it, so that the call is not sent faster and faster. Delays of a RetryPolicy.Backoff are not changed.
func TestRetryPolicy_defaultDelaysBeforeADeadline(t *testing.T) {
	const ms = time.Millisecond
	for deadline, attempts := range map[time.Duration][2]int{100 * ms: {2, 3}, 300 * ms: {2, 3}, time.Second: {2, 4}, 3 * time.Second: {3, 5}, time.Hour: {5, 5}} {
		for range 100 {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				var sent []time.Time
				base := baseFunc(func(*http.Request) (*http.Response, error) {
					sent = append(sent, time.Now())
					return newResponse(503, ""), nil
				})
				start := time.Now()
				_, err := (&Transport{Base: base}).RoundTrip(request(t, "GET", "").WithContext(ctx))
				require.NoError(t, err)
				require.GreaterOrEqual(t, len(sent), attempts[0], deadline)
				require.LessOrEqual(t, len(sent), attempts[1], deadline)
				for i := range sent[1:] {
					d := sent[i+1].Sub(sent[i])
					require.LessOrEqual(t, d, start.Add(deadline).Sub(sent[i+1]), "half of the time is left")
					if i > 0 {
						require.GreaterOrEqual(t, d, sent[i].Sub(sent[i-1]))
					}
				}
				sent = nil
				resp, err := (&Transport{Base: base, Retry: &RetryPolicy{Backoff: backoff.Constant(deadline)}}).RoundTrip(request(t, "GET", "").WithContext(ctx))
				require.NoError(t, err)
				require.Len(t, sent, 1)
				info, _ := InfoFrom(resp)
				require.ErrorIs(t, info.StopReason, context.DeadlineExceeded)
			})
		}
	}
}

// MaxAttempts bounds all attempts, also those that a limit rejects; MaxFailures only those that fail.
func TestRetryPolicy_maximumNumbersOfAttempts(t *testing.T) {
	for name, tt := range map[string]struct {
		policy RetryPolicy
		status int
		want   int
	}{
		"defaults, failures":        {RetryPolicy{}, 500, 5},
		"defaults, rejections":      {RetryPolicy{}, 429, 10},
		"attempts, failures":        {RetryPolicy{MaxAttempts: 6}, 500, 6},
		"attempts, rejections":      {RetryPolicy{MaxAttempts: 2}, 429, 2},
		"failures, failures":        {RetryPolicy{MaxFailures: 3}, 500, 3},
		"failures, rejections":      {RetryPolicy{MaxFailures: 3}, 429, 10},
		"no failures, rejections":   {RetryPolicy{MaxFailures: -1}, 429, 10},
		"no failures, failures":     {RetryPolicy{MaxFailures: -1}, 500, 1},
		"more failures than all":    {RetryPolicy{MaxAttempts: 4, MaxFailures: 9}, 500, 4},
		"one attempt, rejections":   {RetryPolicy{MaxAttempts: 1, MaxFailures: 9}, 429, 1},
		"negative attempts, either": {RetryPolicy{MaxAttempts: -1}, 429, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(tt.status)
			_, err := get(t, &Transport{Base: s, Retry: &tt.policy})
			require.NoError(t, err)
			require.Equal(t, tt.want, s.sent(), name)
		})
	}
}

// A server that is overloaded, or down, blocks a call for about a minute at most, however many attempts are left. A limit
// that states no time is waited for.
func TestRetryPolicy_maxBackoff(t *testing.T) {
	for status, longest := range map[int]time.Duration{529: time.Minute, 503: time.Minute, 500: time.Minute, 429: 5 * time.Minute} {
		for range 30 {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(status)
				resp, err := get(t, &Transport{Base: s, Quota: &quota.Tracker{Mode: quota.Disabled}, Retry: &RetryPolicy{MaxAttempts: 10}})
				require.NoError(t, err)
				info, _ := InfoFrom(resp)
				took := time.Since(s.start)
				require.LessOrEqual(t, took, longest, status)
				if status == 429 {
					require.Equal(t, 10, s.sent())
					return
				}
				require.ErrorIs(t, info.StopReason, ErrMaxElapsed)
				require.ErrorContains(t, info.StopReason, "RetryPolicy.MaxBackoff is 1m0s")
				require.Greater(t, took, 15*time.Second, status)
			})
		}
	}
	synctest.Test(t, func(t *testing.T) {
		s := newScript(503)
		_, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{MaxAttempts: 50, MaxBackoff: -1, MaxElapsed: -1}})
		require.NoError(t, err)
		require.Equal(t, 50, s.sent())
	})
}

// TestRetryPolicy_idempotencyKeyWithoutRetries checks that a request that is sent once has a key too: a server may
// require one, or repeat its response for it.
func TestRetryPolicy_idempotencyKeyWithoutRetries(t *testing.T) {
	for name, tt := range map[string]struct {
		opts   RequestOptions
		policy RetryPolicy
		method string
		header http.Header
		want   string
	}{
		"retried":        {want: "key"},
		"NoRetry":        {opts: RequestOptions{NoRetry: true}, want: "key"},
		"MaxAttempts 1":  {policy: RetryPolicy{MaxAttempts: 1}, want: "key"},
		"an SDK retries": {header: http.Header{"X-Stainless-Retry-Count": {"1"}}, want: "key"},
		"its own key":    {opts: RequestOptions{NoRetry: true}, header: http.Header{"Idempotency-Key": {"own"}}, want: "own"},
		"idempotent":     {opts: RequestOptions{NoRetry: true}, method: "PUT"},
	} {
		s := newScript(200)
		tt.policy.IdempotencyKey = func() string { return "key" }
		req := request(t, cmp.Or(tt.method, "POST"), "x")
		maps.Copy(req.Header, tt.header)
		_, err := (&Transport{Base: s, Retry: &tt.policy}).RoundTrip(req.WithContext(WithOptions(t.Context(), tt.opts)))
		require.NoError(t, err, name)
		require.Equal(t, tt.want, s.got[0].header.Get("Idempotency-Key"), name)
		require.Equal(t, tt.header.Get("Idempotency-Key"), req.Header.Get("Idempotency-Key"), name) // the caller's request is not changed
	}
}
