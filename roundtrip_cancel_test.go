package heed

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// remote is a limiter that may block, so that it is called on the goroutine of
// the caller. It rejects everything for an hour.
type remote struct{}

func (remote) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{Policy: "remote", At: c.Now, Wait: time.Hour}, ctx.Err()
}
func (remote) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (remote) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// TestTransport_contextEndsEveryPhase checks that the context of the request ends a call in every
// phase, and that nothing is sent after that. Without it each call would take a minute or more.
func TestTransport_contextEndsEveryPhase(t *testing.T) {
	gone := errors.New("gone")
	hangs := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, tt := range map[string]struct {
		tr     *Transport
		bucket int64 // units of a limit of one per minute; 0 for no limit
		opts   RequestOptions
		base   bool // Base responds with 500 instead of sending to a blocked server
		sent   int64
	}{
		"in the queue":                       {tr: &Transport{}, bucket: 1},
		"in the queue, with a MaxWait":       {tr: &Transport{}, bucket: 1, opts: RequestOptions{MaxWait: time.Hour}},
		"in the queue of a remote limiter":   {tr: &Transport{Limiter: remote{}}},
		"before a retry":                     {tr: &Transport{Retry: &RetryPolicy{Backoff: backoff.Constant(time.Minute)}}, base: true, sent: 1},
		"in the queue for a retry":           {tr: &Transport{Retry: &RetryPolicy{Backoff: backoff.Constant(0)}}, bucket: 2, base: true, sent: 1},
		"before the first attempt of all":    {tr: &Transport{StartJitter: time.Hour, StartSeed: deviceSeed}},
		"in flight":                          {tr: &Transport{}, sent: 1},
		"in flight, with a timer":            {tr: &Transport{Retry: &RetryPolicy{AttemptTimeout: time.Hour}}, sent: 1},
		"in flight with another Base":        {tr: &Transport{Base: baseFunc(waitForContext)}, sent: 1},
		"in flight, with a timer, elsewhere": {tr: &Transport{Base: baseFunc(waitForContext), Retry: &RetryPolicy{AttemptTimeout: time.Hour}}, sent: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memhttp.NewServer(http.HandlerFunc(hangs))
				defer s.Close()
				var sent atomic.Int64
				tr := tt.tr
				tr.Trace = &Trace{AttemptStart: func(*http.Request, AttemptInfo) { sent.Add(1) }}
				if tt.bucket > 0 {
					tr.Limiter = throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Minute, Burst: tt.bucket})
					_, err := tr.Limiter.Reserve(t.Context(), throttle.Claim{})
					require.NoError(t, err)
				}
				switch {
				case tt.base:
					tr.Base = newScript(500)
				case tr.Base == nil:
					b := s.Transport()
					defer b.CloseIdleConnections()
					tr.Base = b
				}
				ctx, cancel := context.WithCancelCause(WithOptions(t.Context(), tt.opts))
				time.AfterFunc(time.Second, func() { cancel(gone) })
				start := time.Now()
				_, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
				require.ErrorIs(t, err, gone)
				require.Equal(t, time.Second, time.Since(start))
				require.Equal(t, tt.sent, sent.Load())
			})
		})
	}
}

// TestClient_timeoutKeepsNothing checks that the bodies of 100 requests are collected that
// http.Client.Timeout ends while their responses are read.
func TestClient_timeoutKeepsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}))
		defer s.Close()
		base := s.Transport()
		c := NewClient(&Transport{Base: base})
		c.Timeout = time.Second
		var bodies [100]weak.Pointer[[1 << 16]byte]
		for i := range bodies {
			body := new([1 << 16]byte)
			bodies[i] = weak.Make(body)
			resp, err := c.Post(s.URL, "application/octet-stream", bytes.NewReader(body[:]))
			require.NoError(t, err)
			_, err = io.ReadAll(resp.Body)
			var timeout net.Error
			require.ErrorAs(t, err, &timeout)
			require.True(t, timeout.Timeout())
			require.NoError(t, resp.Body.Close())
		}
		base.CloseIdleConnections()
		synctest.Wait()
		runtime.GC()
		kept := 0
		for _, b := range bodies {
			if b.Value() != nil {
				kept++
			}
		}
		require.LessOrEqual(t, kept, 1, "the last one may still be on the stack")
		runtime.KeepAlive(c)
	})
}

// TestClient_timeoutIsATimeoutInEveryPhase checks that the caller gets a timeout error if
// http.Client.Timeout ends a call, in the queue or in flight.
func TestClient_timeoutIsATimeoutInEveryPhase(t *testing.T) {
	for _, limiter := range []throttle.Limiter{nil, throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})} {
		synctest.Test(t, func(t *testing.T) {
			if limiter != nil {
				_, err := limiter.Reserve(t.Context(), throttle.Claim{})
				require.NoError(t, err)
			}
			c := NewClient(&Transport{Base: baseFunc(waitForContext), Limiter: limiter})
			c.Timeout = 10 * time.Second
			start := time.Now()
			_, err := c.Get("http://api.test/")
			var timeout interface{ Timeout() bool }
			require.True(t, errors.As(err, &timeout) && timeout.Timeout(), err)
			require.Equal(t, 10*time.Second, time.Since(start))
		})
	}
}

// A lateContext has a deadline of the past, and its timer has not fired yet.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now(), true }

// TestTransport_deadlineEndsTheCallBeforeTheContext checks that an error after the deadline is final
// although the context has not ended yet: http.Client closes Request.Cancel after its Timeout, and
// http.Transport returns then.
func TestTransport_deadlineEndsTheCallBeforeTheContext(t *testing.T) {
	s := newScript(errBroken)
	tr := &Transport{Base: s, Retry: &RetryPolicy{ShouldRetry: func(*http.Request, *http.Response, error, bool) (bool, error) {
		t.Error("ShouldRetry was called")
		return true, nil
	}}}
	_, err := tr.RoundTrip(request(t, "POST", "").WithContext(lateContext{t.Context()}))
	require.Equal(t, errBroken, err)
	require.Equal(t, 1, s.sent())
}
