package heed

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/stretchr/testify/require"
)

var errBroken = errors.New("broken")

var attemptScenarios = []scenario{
	{number: 40, summary: "no retries is one request", run: func(t *testing.T) {
		for _, r := range []*RetryPolicy{{MaxAttempts: 1}, {MaxAttempts: -1}} {
			s := newScript(500)
			resp, err := get(t, &Transport{Base: s, Retry: r})
			require.NoError(t, err)
			require.Equal(t, "answer 1", text(t, resp))
			require.Equal(t, 1, s.sent())
			s = newScript(errBroken)
			_, err = get(t, &Transport{Base: s, Retry: r})
			require.Equal(t, errBroken, err)
			require.Equal(t, 1, s.sent())
		}
	}},
	{number: 41, summary: "five failures, then success, with attempts enough; there is no unlimited", run: func(t *testing.T) {
		s := newScript(500, errBroken, 500, errBroken, 500, 200)
		_, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{MaxAttempts: 100, MaxBackoff: -1}})
		require.NoError(t, err)
		require.Equal(t, 6, s.sent())
	}},
	{number: 42, summary: "the default is 5 attempts, 10 if all were told to slow down", run: func(t *testing.T) {
		for status, sent := range map[int]int{500: 5, 429: 10} {
			s := newScript(status)
			_, err := get(t, &Transport{Base: s})
			require.NoError(t, err)
			require.Equal(t, sent, s.sent(), status)
		}
	}},
	{number: 43, summary: "no wait after the last failure", run: func(t *testing.T) {
		s := newScript(500)
		_, err := send(t, s, "GET")
		require.NoError(t, err)
		require.Equal(t, 2*time.Second, time.Since(s.start))
	}},
	{number: 44, summary: "the error has method, URL and attempts", run: func(t *testing.T) {
		_, err := send(t, newScript(errBroken), "GET")
		require.ErrorContains(t, err, " (after 3 attempts, 2 s of waiting): 1: broken: 2: broken: 3: broken")
		var g *GiveUpError
		require.ErrorAs(t, err, &g) // http.Client adds method and URL to the text
		require.Equal(t, "GET http://api.test/items", g.Method+" "+g.URL)
	}},
	{number: 45, summary: "the password of a URL is not in it, nor values of the query", run: func(t *testing.T) {
		req := request(t, "GET", "")
		req.URL.RawQuery, req.URL.Fragment = "q=secret1&flag&sig=secret2", "secret3"
		req.URL.User = userinfo("me", "secret4")
		_, err := (&Transport{Base: newScript(errBroken)}).RoundTrip(req)
		var g *GiveUpError
		require.ErrorAs(t, err, &g)
		require.Equal(t, "http://api.test/items?q=xxxxx&xxxxx&sig=xxxxx", g.URL)
		require.NotContains(t, err.Error(), "secret")
	}},
	{number: 46, summary: "the last error is wrapped", run: func(t *testing.T) {
		_, err := send(t, newScript(500, &temporary{}), "GET")
		var own *temporary
		require.ErrorAs(t, err, &own)
		var g *GiveUpError
		require.ErrorAs(t, err, &g)
		require.Equal(t, own, g.Err)
	}},
	{number: 47, summary: "either an answer or an error", run: func(t *testing.T) {
		resp, err := send(t, newScript(errBroken, 500), "GET")
		require.NotNil(t, resp)
		require.NoError(t, err)
		resp, err = send(t, newScript(500, errBroken), "GET")
		require.Nil(t, resp)
		require.Error(t, err)
	}},
	{number: 48, summary: "the last failure itself, readable", run: func(t *testing.T) {
		s := newScript(500, 500, 502, 503, 504)
		resp, err := get(t, &Transport{Base: s})
		require.NoError(t, err)
		require.Equal(t, 504, resp.StatusCode)
		require.Equal(t, "answer 5", text(t, resp))
	}},
	{number: 49, summary: "what the policy does not name ends the loop as it is", run: expectStatus(404, 3, 500, 500, 404)},
	{number: 50, summary: "an attempt that overruns the total is the last", run: func(t *testing.T) {
		s := newScript(500, func(*http.Request) (*http.Response, error) {
			time.Sleep(10 * time.Second)
			return newResponse(502, "late"), nil
		})
		resp, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{MaxElapsed: 5 * time.Second, Backoff: backoff.Constant(time.Second)}})
		require.NoError(t, err)
		require.Equal(t, "late", text(t, resp))
		require.Equal(t, 2, s.sent())
		info, _ := InfoFrom(resp)
		require.ErrorIs(t, info.StopReason, ErrMaxElapsed)
	}},
	{number: 51, summary: "a wait that passes the total is not slept, nor cut short", run: func(t *testing.T) {
		s := newScript(500)
		_, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{MaxElapsed: 5 * time.Second, Backoff: backoff.Constant(3 * time.Second)}})
		require.NoError(t, err)
		require.Equal(t, 2, s.sent())
		require.Equal(t, 3*time.Second, time.Since(s.start))
	}},
	// The list says that 0 means no limit. MaxElapsed has a default of 15 min instead, so
	// that retries always end.
	{number: 52, summary: "a negative total is none, 0 is 15 minutes", run: func(t *testing.T) {
		for elapsed, sent := range map[time.Duration]int{-1: 5, 0: 3} {
			s := newScript(500)
			_, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{MaxElapsed: elapsed, MaxBackoff: -1, Backoff: backoff.Constant(6 * time.Minute)}})
			require.NoError(t, err)
			require.Equal(t, sent, s.sent())
		}
	}},
	{number: 53, summary: "an abort condition stops at once", run: expectError(context.Canceled, 1, func(r *http.Request) (*http.Response, error) {
		return nil, context.Canceled
	})},
	{number: 54, summary: "nested transports do not multiply", run: func(t *testing.T) {
		for _, step := range []any{500, 429, errBroken} {
			s := newScript(step)
			inner := &Transport{Base: s, Retry: threeAttempts()}
			middle := &Transport{Base: inner, Retry: threeAttempts()}
			resp, err := get(t, &Transport{Base: middle, Retry: threeAttempts()})
			require.Equal(t, 3, s.sent(), step)
			if err == nil {
				info, ok := InfoFrom(resp)
				require.True(t, ok)
				require.Equal(t, 3, info.Attempts)
				require.ErrorIs(t, info.StopReason, ErrMaxAttempts)
				require.Equal(t, "answer 3", text(t, resp))
			}
		}
	}},
	{number: 55, summary: "a budget: first attempts always, retries by the share and the floor", run: func(t *testing.T) {
		b := &backoff.Budget{Ratio: 0.5, MinPerSecond: 0.1}
		s := newScript(500)
		tr := &Transport{Base: s, Retry: &RetryPolicy{MaxAttempts: 2, Budget: b}}
		var rejected int
		for range 10 {
			resp, err := get(t, tr)
			require.NoError(t, err)
			if info, _ := InfoFrom(resp); errors.Is(info.StopReason, ErrRetryBudget) {
				rejected++
			}
		}
		require.LessOrEqual(t, s.sent(), 10+5+1)
		require.Equal(t, 20-s.sent(), rejected)
		require.Positive(t, rejected)
		require.EqualValues(t, rejected, b.Snapshot(time.Now()).Rejected)
	}},
	{number: 56, summary: "each call counts afresh", run: func(t *testing.T) {
		s := newScript(500)
		tr := &Transport{Base: s, Retry: threeAttempts()}
		for range 2 {
			_, err := get(t, tr)
			require.NoError(t, err)
		}
		require.Equal(t, 6, s.sent())
	}},
	{number: 57, summary: "each call begins its delays anew", run: func(t *testing.T) {
		s := newScript(500)
		tr := &Transport{Base: s, Retry: &RetryPolicy{MaxAttempts: 3, Backoff: backoff.Exponential{Base: time.Second, Jitter: backoff.None}}}
		for range 2 {
			_, err := get(t, tr)
			require.NoError(t, err)
		}
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second, 0, time.Second, 2 * time.Second}, s.gaps())
	}},
}

// temporary is an error with a Temporary method that returns true.
type temporary struct{}

func (*temporary) Error() string   { return "temporary" }
func (*temporary) Temporary() bool { return true }
