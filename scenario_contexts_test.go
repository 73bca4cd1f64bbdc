package heed

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/httpbody"
	"github.com/stretchr/testify/require"
)

// waitForContext blocks until the end of the context and returns its cause.
func waitForContext(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// respondAfter responds with status after d, unless the context ends first.
func respondAfter(d time.Duration, status int) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		// Not time.After(d): up to Go 1.26, the race detector crashes when goroutines of one bubble
		// receive from timers that have expired already.
		if err := httpbody.Sleep(r.Context(), nil, d); err != nil {
			return nil, err
		}
		return newResponse(status, "slow"), nil
	}
}

var contextScenarios = []scenario{
	{number: 108, summary: "cancelled before: nothing sent", run: func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s := newScript(200)
		body := &opaque{Reader: strings.NewReader("abc")}
		_, err := (&Transport{Base: s}).RoundTrip(put(t, body, -1).WithContext(ctx))
		require.Equal(t, context.Canceled, err)
		require.Zero(t, s.sent())
		require.Equal(t, 1, body.closed)
	}},
	{number: 109, summary: "the deadline passes while the first answer is awaited", run: func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s := newScript(waitForContext)
		_, err := (&Transport{Base: s}).RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.Equal(t, context.DeadlineExceeded, err)
		require.Equal(t, 1, s.sent())
	}},
	{number: 110, summary: "the deadline passes during the second attempt", run: func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		s := newScript(500, waitForContext)
		_, err := (&Transport{Base: s, Retry: threeAttempts()}).RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 2, s.sent())
		require.Equal(t, 2*time.Second, time.Since(s.start))
	}},
	{number: 111, summary: "cancelled during the wait: at once", run: func(t *testing.T) {
		for _, tt := range []response{{500, "", nil}, {429, "", []string{"Retry-After", "5"}}} {
			ctx, cancel := context.WithCancel(t.Context())
			s := newScript(tt)
			time.AfterFunc(300*time.Millisecond, cancel)
			_, err := (&Transport{Base: s, Retry: threeAttempts()}).RoundTrip(request(t, "GET", "").WithContext(ctx))
			require.ErrorIs(t, err, context.Canceled)
			var g *GiveUpError
			require.ErrorAs(t, err, &g)
			require.Equal(t, tt.status, g.Attempts[0].Status)
			require.Equal(t, 1, s.sent())
			require.Equal(t, 300*time.Millisecond, time.Since(s.start))
		}
	}},
	{number: 112, summary: "Client.Timeout in the wait, in line and in flight says Timeout", run: func(t *testing.T) {
		for _, step := range []any{waitForContext, errBroken} {
			c := NewClient(&Transport{Base: newScript(step), Retry: threeAttempts()})
			c.Timeout = 1500 * time.Millisecond
			_, err := c.Get("http://api.test/")
			var u *url.Error
			require.ErrorAs(t, err, &u)
			require.True(t, u.Timeout(), err)
		}
	}},
	{number: 113, summary: "Client.Timeout while the body of a good answer is read", run: func(t *testing.T) {
		n := 0
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
			n++
			io.WriteString(w, "begin")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // ends the response without a final chunk
		})
		defer s.close()
		c := NewClient(&Transport{Base: s.base})
		c.Timeout = time.Second
		resp, err := c.Get(s.URL)
		require.NoError(t, err)
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		var timeout interface{ Timeout() bool }
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
		require.Equal(t, 1, n)
	}},
	{number: 114, summary: "a limit per attempt", run: func(t *testing.T) {
		s := newScript(respondAfter(100*time.Millisecond, 200))
		_, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{AttemptTimeout: 10 * time.Millisecond}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "AttemptTimeout")
		require.Equal(t, 5, s.sent())
		for _, d := range []time.Duration{time.Second, 0} {
			s = newScript(429)
			resp, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{MaxAttempts: 4, AttemptTimeout: d}})
			require.NoError(t, err)
			require.Equal(t, "answer 4", text(t, resp))
		}
	}},
	{number: 115, summary: "the deadline of all against that of one", run: func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		s := newScript(waitForContext)
		_, err := (&Transport{Base: s, Retry: &RetryPolicy{AttemptTimeout: time.Second, Backoff: backoff.Constant(0)}}).RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 2, s.sent())
		require.Equal(t, 1500*time.Millisecond, time.Since(s.start))
	}},
	{number: 116, summary: "the body of the final answer outlives the limit per attempt", run: func(t *testing.T) {
		var attempt context.Context
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
			w.(http.Flusher).Flush()
			time.Sleep(time.Minute)
			io.WriteString(w, strings.Repeat("x", 100<<10))
		})
		defer s.close()
		tr := &Transport{Base: s.base, Retry: &RetryPolicy{AttemptTimeout: time.Second}, Trace: &Trace{AttemptStart: func(r *http.Request, _ AttemptInfo) { attempt = r.Context() }}}
		resp, err := get(t, tr)
		require.NoError(t, err)
		require.Len(t, text(t, resp), 100<<10)
		require.Error(t, attempt.Err())
	}},
	{number: 117, summary: "of two contexts, whichever ends first", run: func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		ctx, cancel = context.WithTimeoutCause(ctx, time.Second, errBroken)
		defer cancel()
		s := newScript(waitForContext)
		_, err := (&Transport{Base: s}).RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.ErrorIs(t, err, errBroken)
		require.Equal(t, time.Second, time.Since(s.start))
	}},
	{number: 118, summary: "the outer limit ends a wait, the inner one is retried", run: func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newScript(waitForContext)
		time.AfterFunc(2*time.Second, cancel)
		_, err := (&Transport{Base: s, Retry: &RetryPolicy{AttemptTimeout: 100 * time.Millisecond, MaxAttempts: 100, Backoff: backoff.Constant(time.Second)}}).RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 2, s.sent())
		require.Equal(t, 2*time.Second, time.Since(s.start))
	}},
	{number: 119, summary: "what was made for a call has ended after it", run: func(t *testing.T) {
		var attempts []context.Context
		tr := &Transport{Base: newScript(500, errBroken, 200), Retry: threeAttempts(), Trace: &Trace{AttemptStart: func(r *http.Request, _ AttemptInfo) { attempts = append(attempts, r.Context()) }}}
		tr.Retry.AttemptTimeout = time.Minute
		resp, err := get(t, tr)
		require.NoError(t, err)
		resp.Body.Close()
		for _, ctx := range attempts {
			require.Error(t, ctx.Err())
		}
	}},
	{number: 120, summary: "the cause is kept", run: func(t *testing.T) {
		for _, step := range []any{waitForContext, 500, response{429, "", []string{"Retry-After", "5"}}} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(300*time.Millisecond, func() { cancel(errBroken) })
			_, err := (&Transport{Base: newScript(step), Retry: threeAttempts()}).RoundTrip(request(t, "GET", "").WithContext(ctx))
			require.ErrorIs(t, err, errBroken)
		}
	}},
	{number: 121, summary: "cancelled inside the third attempt", run: func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newScript(500, 500, func(r *http.Request) (*http.Response, error) {
			cancel()
			return nil, errBroken
		})
		_, err := (&Transport{Base: s}).RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errBroken)
		require.Equal(t, 3, s.sent())
	}},
}
