package heed

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
)

// A permissionServer responds with 403 to requests for the paths in forbidden, to so many of each,
// and with 200 to all others.
type permissionServer struct {
	forbidden map[string]int
	sent      []string // paths
}

// RoundTrip implements http.RoundTripper.
func (s *permissionServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.sent = append(s.sent, r.URL.Path)
	status := http.StatusOK
	if s.forbidden[r.URL.Path] > 0 {
		s.forbidden[r.URL.Path]--
		status = http.StatusForbidden
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// call sends a request through tr and returns its response.
func call(t *testing.T, tr *Transport, method, path string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://api.test"+path, http.NoBody)
	require.NoError(t, err)
	if len(header) > 0 {
		req.Header.Set(header[0], header[1])
	}
	resp, err := tr.RoundTrip(req)
	require.NoError(t, err)
	return resp
}

const always = 1 << 30 // for permissionServer.forbidden

// TestTransport_retriesA403OfAHealthyRoute checks which requests are retried after a 403, when
// requests of the same or another route have succeeded.
func TestTransport_retriesA403OfAHealthyRoute(t *testing.T) {
	for name, tt := range map[string]struct {
		retry     *RetryPolicy
		mode      quota.Mode
		before    string // path of 20 successful requests
		method    string
		header    []string
		forbidden int // 403s
		status    int
		sent      int
		reason    error
	}{
		"once":                {forbidden: 1, status: 200, sent: 2},
		"not a second time":   {forbidden: always, status: 403, sent: 2},
		"another route":       {before: "/accounts/1", forbidden: 1, status: 403, sent: 1},
		"PUT":                 {method: "PUT", forbidden: 1, status: 403, sent: 1}, // no write has succeeded
		"POST":                {before: "POST /items/1", method: "POST", forbidden: 1, status: 403, sent: 1, reason: ErrNotIdempotent},
		"POST with a key":     {before: "POST /items/1", method: "POST", header: []string{"Idempotency-Key", "k"}, forbidden: 1, status: 200, sent: 2},
		"declared idempotent": {retry: &RetryPolicy{Idempotent: func(*http.Request) bool { return true }}, before: "POST /items/1", method: "POST", forbidden: 1, status: 200, sent: 2},
		"stated only":         {mode: quota.StatedOnly, forbidden: 1, status: 403, sent: 1},
		"disabled":            {mode: quota.Disabled, forbidden: 1, status: 403, sent: 1},
		"no attempts left":    {retry: &RetryPolicy{MaxAttempts: 1, MaxThrottledAttempts: 5}, forbidden: 1, status: 403, sent: 1, reason: ErrMaxAttempts},
		"no retries":          {retry: &RetryPolicy{MaxAttempts: 1}, forbidden: 1, status: 403, sent: 1},
		"no budget":           {retry: &RetryPolicy{Budget: &backoff.Budget{Ratio: -1, MinPerSecond: -1}}, forbidden: 1, status: 403, sent: 1, reason: ErrRetryBudget},
		"no time":             {retry: &RetryPolicy{MaxWait: time.Nanosecond, Backoff: backoff.Constant(time.Second)}, forbidden: 1, status: 403, sent: 1, reason: ErrMaxWait},
	} {
		synctest.Test(t, func(t *testing.T) {
			before, method := tt.before, tt.method
			if before == "" {
				before = "GET /items/1"
			}
			if !strings.Contains(before, " ") {
				before = "GET " + before
			}
			if method == "" {
				method = "GET"
			}
			s := &permissionServer{forbidden: map[string]int{"/items/2": tt.forbidden}}
			tr := &Transport{Base: s, Retry: tt.retry, Quota: &quota.Tracker{Mode: tt.mode}}
			beforeMethod, path, _ := strings.Cut(before, " ")
			for range 20 {
				require.Equal(t, 200, call(t, tr, beforeMethod, path).StatusCode, name)
			}
			start := time.Now()
			resp := call(t, tr, method, "/items/2", tt.header...)
			require.Equal(t, tt.status, resp.StatusCode, name)
			require.Len(t, s.sent, 20+tt.sent, name)
			require.LessOrEqual(t, time.Since(start), backoff.DefaultBase, name)
			info, _ := InfoFrom(resp)
			require.ErrorIs(t, info.StopReason, tt.reason, name)
		})
	}
}

// TestTransport_aMissingPermissionCostsFewRequests checks a route whose requests are rejected with
// 403 from some time on, and one that always was.
func TestTransport_aMissingPermissionCostsFewRequests(t *testing.T) {
	for name, tt := range map[string]struct {
		successes, extra int
	}{
		"never allowed":    {0, 0},
		"no longer":        {100, 6},
		"hardly allowed":   {9, 0},
		"allowed 10 times": {10, 6},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &permissionServer{forbidden: map[string]int{}}
			tr := &Transport{Base: s}
			for range tt.successes {
				call(t, tr, "GET", "/items/1")
			}
			s.forbidden["/items/1"] = always
			const calls = 200
			for range calls {
				require.Equal(t, 403, call(t, tr, "GET", "/items/1").StatusCode, name)
				time.Sleep(time.Minute) // no rate is learned
			}
			require.Equal(t, tt.successes+calls+tt.extra, len(s.sent), name)
		})
	}
}

// TestTransport_shouldRetrySees403s checks that the hook can prevent the retry of a 403, and that
// it sees it as it sees others.
func TestTransport_shouldRetrySees403s(t *testing.T) {
	for _, permit := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var asked []bool
			s := &permissionServer{forbidden: map[string]int{"/items/2": always}}
			tr := &Transport{Base: s, Retry: &RetryPolicy{ShouldRetry: func(_ *http.Request, resp *http.Response, _ error, again bool) (bool, error) {
				if resp.StatusCode == http.StatusForbidden {
					asked = append(asked, again)
				}
				return again && permit, nil
			}}}
			for range 20 {
				call(t, tr, "GET", "/items/1")
			}
			require.Equal(t, 403, call(t, tr, "GET", "/items/2").StatusCode)
			if permit {
				require.Equal(t, []bool{true, false}, asked)
			} else {
				require.Equal(t, []bool{true}, asked)
			}
		})
	}
}

// TestTransport_stray403sFailFewCalls checks a healthy server that responds with 403 to 2 % of the
// requests of several callers. Each of them is retried, and no call fails.
func TestTransport_stray403sFailFewCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n, failed, retried atomic.Int64
		base := baseFunc(func(r *http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Millisecond)
			status := http.StatusOK
			if AttemptFrom(r.Context()) == 0 && n.Add(1)%50 == 0 {
				status = http.StatusForbidden
			}
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
		})
		tr := &Transport{Base: base, Trace: &Trace{Retry: func(*http.Request, RetryInfo) { retried.Add(1) }}}
		const callers, calls = 10, 100
		done := make(chan error, callers)
		for range callers {
			go func() {
				for range calls {
					resp, err := get(t, tr)
					if err != nil {
						done <- err
						return
					}
					if resp.StatusCode != http.StatusOK {
						failed.Add(1)
					}
				}
				done <- nil
			}()
		}
		for range callers {
			require.NoError(t, <-done)
		}
		require.Zero(t, failed.Load())
		require.EqualValues(t, callers*calls/50, retried.Load())
	})
}
