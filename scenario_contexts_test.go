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
	"github.com/stretchr/testify/require"
)

// hangs answers when the context ends, with its error.
func hangs(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, context.Cause(r.Context())
}

// takes answers 200 after d.
func takes(d time.Duration) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		select {
		case <-time.After(d):
			return says(200, "slow"), nil
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		}
	}
}

var contexts = []scenario{
	{number: 108, what: "cancelled before: nothing sent", run: func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s := plays(200)
		body := &opaque{Reader: strings.NewReader("abc")}
		_, err := (&Transport{Base: s}).RoundTrip(put(t, body, -1).WithContext(ctx))
		require.Equal(t, context.Canceled, err)
		require.Zero(t, s.sent())
		require.Equal(t, 1, body.closed)
	}},
	{number: 109, what: "the deadline passes while the first answer is awaited", run: func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s := plays(hangs)
		_, err := (&Transport{Base: s}).RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.Equal(t, context.DeadlineExceeded, err)
		require.Equal(t, 1, s.sent())
	}},
	{number: 110, what: "the deadline passes during the second attempt", run: func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		s := plays(500, hangs)
		_, err := (&Transport{Base: s, Retry: three()}).RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 2, s.sent())
		require.Equal(t, 2*time.Second, time.Since(s.start))
	}},
	{number: 111, what: "cancelled during the wait: at once", run: func(t *testing.T) {
		for _, tt := range []answer{{500, "", nil}, {429, "", []string{"Retry-After", "5"}}} {
			ctx, cancel := context.WithCancel(t.Context())
			s := plays(tt)
			time.AfterFunc(300*time.Millisecond, cancel)
			_, err := (&Transport{Base: s, Retry: three()}).RoundTrip(request(t, "GET", "").WithContext(ctx))
			require.ErrorIs(t, err, context.Canceled)
			var g *GiveUpError
			require.ErrorAs(t, err, &g)
			require.Equal(t, tt.status, g.Attempts[0].Status)
			require.Equal(t, 1, s.sent())
			require.Equal(t, 300*time.Millisecond, time.Since(s.start))
		}
	}},
	{number: 112, what: "Client.Timeout in the wait, in line and in flight says Timeout", run: func(t *testing.T) {
		for _, step := range []any{hangs, errBroken} {
			c := NewClient(&Transport{Base: plays(step), Retry: three()})
			c.Timeout = 1500 * time.Millisecond
			_, err := c.Get("http://api.test/")
			var u *url.Error
			require.ErrorAs(t, err, &u)
			require.True(t, u.Timeout(), err)
		}
	}},
	{number: 113, what: "Client.Timeout while the body of a good answer is read", run: func(t *testing.T) {
		n := 0
		s := newSite(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
			n++
			io.WriteString(w, "begin")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			panic(http.ErrAbortHandler) // no proper end
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
	{number: 114, what: "a limit per attempt", run: func(t *testing.T) {
		s := plays(takes(100 * time.Millisecond))
		_, err := get(t, &Transport{Base: s, Retry: &Retry{PerAttempt: 10 * time.Millisecond}})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "PerAttempt")
		require.Equal(t, 4, s.sent())
		for _, d := range []time.Duration{time.Second, 0} {
			s = plays(429)
			resp, err := get(t, &Transport{Base: s, Retry: &Retry{Attempts: 4, PerAttempt: d}})
			require.NoError(t, err)
			require.Equal(t, "answer 4", text(t, resp))
		}
	}},
	{number: 115, what: "the deadline of all against that of one", run: func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		s := plays(hangs)
		_, err := (&Transport{Base: s, Retry: &Retry{PerAttempt: time.Second, Backoff: backoff.Constant(0)}}).RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 2, s.sent())
		require.Equal(t, 1500*time.Millisecond, time.Since(s.start))
	}},
	{number: 116, what: "the body of the final answer outlives the limit per attempt", run: func(t *testing.T) {
		var attempt context.Context
		s := newSite(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
			w.(http.Flusher).Flush()
			time.Sleep(time.Minute)
			io.WriteString(w, strings.Repeat("x", 100<<10))
		})
		defer s.close()
		tr := &Transport{Base: s.base, Retry: &Retry{PerAttempt: time.Second}, Trace: &Trace{Send: func(r *http.Request, _ Step) { attempt = r.Context() }}}
		resp, err := get(t, tr)
		require.NoError(t, err)
		require.Len(t, text(t, resp), 100<<10)
		require.Error(t, attempt.Err())
	}},
	{number: 117, what: "of two contexts, whichever ends first", run: func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		ctx, cancel = context.WithTimeoutCause(ctx, time.Second, errBroken)
		defer cancel()
		s := plays(hangs)
		_, err := (&Transport{Base: s}).RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.ErrorIs(t, err, errBroken)
		require.Equal(t, time.Second, time.Since(s.start))
	}},
	{number: 118, what: "the outer limit ends a wait, the inner one is retried", run: func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := plays(hangs)
		time.AfterFunc(2*time.Second, cancel)
		_, err := (&Transport{Base: s, Retry: &Retry{PerAttempt: 100 * time.Millisecond, Attempts: 100, Backoff: backoff.Constant(time.Second)}}).RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 2, s.sent())
		require.Equal(t, 2*time.Second, time.Since(s.start))
	}},
	{number: 119, what: "what was made for a call has ended after it", run: func(t *testing.T) {
		var attempts []context.Context
		tr := &Transport{Base: plays(500, errBroken, 200), Retry: three(), Trace: &Trace{Send: func(r *http.Request, _ Step) { attempts = append(attempts, r.Context()) }}}
		tr.Retry.PerAttempt = time.Minute
		resp, err := get(t, tr)
		require.NoError(t, err)
		resp.Body.Close()
		for _, ctx := range attempts {
			require.Error(t, ctx.Err())
		}
	}},
	{number: 120, what: "the cause is kept", run: func(t *testing.T) {
		for _, step := range []any{hangs, 500, answer{429, "", []string{"Retry-After", "5"}}} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(300*time.Millisecond, func() { cancel(errBroken) })
			_, err := (&Transport{Base: plays(step), Retry: three()}).RoundTrip(request(t, "GET", "").WithContext(ctx))
			require.ErrorIs(t, err, errBroken)
		}
	}},
	{number: 121, what: "cancelled inside the third attempt", run: func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := plays(500, 500, func(r *http.Request) (*http.Response, error) {
			cancel()
			return nil, errBroken
		})
		_, err := (&Transport{Base: s}).RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errBroken)
		require.Equal(t, 3, s.sent())
	}},
}
