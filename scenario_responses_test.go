package heed

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var responseScenarios = []scenario{
	{number: 1, summary: "a good answer is one request", run: expectStatus(200, 1, 200)},
	{number: 2, summary: "always 500 is as many requests as allowed", run: expectStatus(500, 3, 500)},
	{number: 3, summary: "500 until some moment, then 200", run: func(t *testing.T) {
		opens := time.Now().Add(90 * time.Second)
		s := newScript(func(*http.Request) (*http.Response, error) {
			if time.Now().Before(opens) {
				return newResponse(500, "no"), nil
			}
			return newResponse(200, "yes"), nil
		})
		resp, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{MaxAttempts: 100, MaxBackoff: -1}})
		require.NoError(t, err)
		require.Equal(t, "yes", text(t, resp))
		require.Equal(t, s.opened, s.closed)
	}},
	{number: 4, summary: "429, 429, 200", run: expectStatus(200, 3, 429, 429, 200)},
	{number: 5, summary: "429 for ever: the last one, readable", run: expectStatus(429, 3, 429)},
	{number: 6, summary: "502, 503, 504, 520, 529 are retried; by policy 505, 507, 508, 511, 599 are not", run: expectAttempts(3, 502, 503, 504, 520, 524, 529, 1, 505, 507, 508, 511, 599)},
	{number: 7, summary: "501 is final", run: expectStatus(501, 1, 501)},
	{number: 8, summary: "600 and 999 are final", run: expectAttempts(1, 600, 999)},
	{number: 9, summary: "what the request is to blame for is final; by policy 408 and 425 are retried", run: expectAttempts(1, 204, 304, 400, 401, 403, 404, 409, 413, 421, 423, 451, 3, 408, 425)},
	{number: 10, summary: "a predicate that retries 404", run: func(t *testing.T) {
		s := newScript(404, 404, 200)
		resp, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{ShouldRetry: func(_ *http.Request, resp *http.Response, _ error, again bool) (bool, error) {
			return again || resp != nil && resp.StatusCode == 404, nil
		}}})
		require.NoError(t, err)
		require.Equal(t, "answer 3", text(t, resp))
	}},
	{number: 11, summary: "a list of statuses is a predicate", run: func(t *testing.T) {
		for status, sent := range map[int]int{401: 3, 402: 1, 500: 3} {
			s := newScript(status)
			_, err := get(t, &Transport{Base: s, Retry: retryOnly(401, 500)})
			require.NoError(t, err)
			require.Equal(t, sent, s.sent(), status)
		}
	}},
	{number: 12, summary: "an interval of statuses is a predicate", run: func(t *testing.T) {
		r := threeAttempts()
		r.ShouldRetry = func(_ *http.Request, resp *http.Response, _ error, _ bool) (bool, error) {
			return resp != nil && 500 <= resp.StatusCode && resp.StatusCode < 600, nil
		}
		for status, sent := range map[int]int{499: 1, 500: 3, 599: 3, 600: 1} {
			s := newScript(status)
			_, err := get(t, &Transport{Base: s, Retry: r})
			require.NoError(t, err)
			require.Equal(t, sent, s.sent(), status)
		}
	}},
	{number: 13, summary: "a predicate that says no: the answer, no error", run: func(t *testing.T) {
		s := newScript(500)
		resp, err := get(t, &Transport{Base: s, Retry: retryOnly()})
		require.NoError(t, err)
		require.Equal(t, "answer 1", text(t, resp))
		require.Equal(t, 1, s.sent())
	}},
	{number: 14, summary: "a predicate that stops with an error on attempt 2", run: func(t *testing.T) {
		stop := errors.New("enough")
		s := newScript(500)
		n := 0
		_, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{ShouldRetry: func(*http.Request, *http.Response, error, bool) (bool, error) {
			if n++; n == 2 {
				return true, stop
			}
			return true, nil
		}}})
		require.ErrorIs(t, err, stop)
		require.ErrorContains(t, err, "after 2 attempts")
		require.Equal(t, 2, s.sent())
		require.Equal(t, s.opened, s.closed)
	}},
	{number: 15, summary: "a list of methods is a predicate", run: func(t *testing.T) {
		r := threeAttempts()
		r.ShouldRetry = func(req *http.Request, _ *http.Response, _ error, again bool) (bool, error) {
			return again && req.Method == "GET", nil
		}
		for method, sent := range map[string]int{"POST": 1, "PUT": 1, "GET": 3} {
			s := newScript(429)
			_, err := (&Transport{Base: s, Retry: r}).RoundTrip(request(t, method, ""))
			require.NoError(t, err)
			require.Equal(t, sent, s.sent(), method)
		}
	}},
	{number: 16, summary: "all of no rules, any of no rules", reason: "a predicate is a func: && of nothing is true, || of nothing is false, in the language"},
	{number: 17, summary: "rules combined in one predicate", run: func(t *testing.T) {
		r := &RetryPolicy{MaxAttempts: 3, ShouldRetry: func(req *http.Request, resp *http.Response, _ error, _ bool) (bool, error) {
			c := resp.StatusCode
			return req.Method == "GET" || c == 401 || c == 403 || req.Method == "POST" && c == 500, nil
		}}
		for _, tt := range []struct {
			method string
			status int
			sent   int
		}{{"DELETE", 500, 1}, {"DELETE", 401, 3}, {"GET", 400, 3}, {"POST", 404, 1}, {"POST", 500, 3}} {
			s := newScript(tt.status)
			_, err := (&Transport{Base: s, Retry: r}).RoundTrip(request(t, tt.method, ""))
			require.NoError(t, err)
			require.Equal(t, tt.sent, s.sent(), tt)
		}
	}},
	{number: 18, summary: "POST and PATCH only where the work was rejected, or harmless twice", run: func(t *testing.T) {
		for _, method := range []string{"POST", "PATCH"} {
			for _, tt := range []struct {
				step any
				name string // name of a request header
				sent int
			}{
				{429, "", 3},
				{500, "", 1},
				{503, "", 1},
				{response{503, "", []string{"Retry-After", "1"}}, "", 3},
				{500, "Idempotency-Key", 3},
				{502, "X-Idempotency-Key", 3},
				{response{500, "", []string{"X-Should-Retry", "true"}}, "", 3},
				{response{429, "", []string{"X-Should-Retry", "false"}}, "", 1},
				{response{503, "", []string{"Retry-After", "1", "Stripe-Should-Retry", "false"}}, "", 1},
				{response{503, "", []string{"Retry-After", "1", "Grpc-Retry-Pushback-Ms", "-1"}}, "", 1},
			} {
				s := newScript(tt.step)
				req := request(t, method, "")
				if tt.name != "" {
					req.Header.Set(tt.name, "k")
				}
				_, err := (&Transport{Base: s, Retry: threeAttempts()}).RoundTrip(req)
				require.NoError(t, err)
				require.Equal(t, tt.sent, s.sent(), fmt.Sprint(method, tt))
			}
		}
		s := newScript(500)
		req := request(t, "POST", "x")
		_, err := (&Transport{Base: s, Retry: threeAttempts()}).RoundTrip(req.WithContext(WithOptions(t.Context(), RequestOptions{Idempotent: true})))
		require.NoError(t, err)
		require.Equal(t, 3, s.sent())
	}},
	{number: 19, summary: "HEAD", run: expectStatusOf("HEAD", 200, 2, response{status: 503}, response{status: 200})},
	{number: 20, summary: "a handler run after a good answer", reason: "a RoundTripper has no such handler: what fails there is the caller's, after RoundTrip; TestTransport_neverRetriesASuccess"},
}

// retryOnly retries only these statuses, at most twice.
func retryOnly(statuses ...int) *RetryPolicy {
	r := threeAttempts()
	r.ShouldRetry = func(_ *http.Request, resp *http.Response, _ error, _ bool) (bool, error) {
		return resp != nil && slices.Contains(statuses, resp.StatusCode), nil
	}
	return r
}

// expectAttempts checks the number of attempts for each status. A number below 100 is the
// expected number for the statuses that follow.
func expectAttempts(list ...int) func(*testing.T) {
	return func(t *testing.T) {
		sent := 0
		for _, n := range list {
			if n < 100 {
				sent = n
				continue
			}
			s := newScript(n)
			resp, err := send(t, s, "GET")
			require.NoError(t, err)
			require.Equal(t, n, resp.StatusCode)
			require.Equal(t, sent, s.sent(), n)
		}
	}
}
