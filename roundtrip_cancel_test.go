package heed

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

func setCancel(req *http.Request, c <-chan struct{}) {
	req.Cancel = c //nolint:staticcheck // it is what is tested
}

// remote is a limiter that may block, so that it is called on the goroutine of
// the caller. It rejects everything for an hour.
type remote struct{}

func (remote) Reserve(ctx context.Context, c throttle.Claim) (throttle.Decision, error) {
	return throttle.Decision{Policy: "remote", At: c.Now, Wait: time.Hour}, ctx.Err()
}
func (remote) Cancel(context.Context, throttle.Claim, throttle.Decision) {}

// TestTransport_canceledWithoutContext checks that Request.Cancel and CancelRequest end a
// call in every phase, and that nothing is sent after that. Without them each call would
// take a minute or more.
func TestTransport_canceledWithoutContext(t *testing.T) {
	hangs := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	for name, tt := range map[string]struct {
		tr     *Transport
		bucket int64 // units of a limit of one per minute; 0 for no limit
		opts   RequestOptions
		base   bool // Base responds with 500 instead of sending to a blocked server
		sent   int64
		needsC bool // only Request.Cancel can end the call
	}{
		"in the queue":                       {bucket: 1},
		"in the queue, with a MaxWait":       {bucket: 1, opts: RequestOptions{MaxWait: time.Hour}},
		"in the queue of a remote limiter":   {tr: &Transport{Limiter: remote{}}},
		"in a pause":                         {tr: &Transport{Retry: &RetryPolicy{Backoff: backoff.Constant(time.Minute)}}, base: true, sent: 1},
		"in the queue for a retry":           {tr: &Transport{Retry: &RetryPolicy{Backoff: backoff.Constant(0)}}, bucket: 2, base: true, sent: 1},
		"before the first attempt of all":    {tr: &Transport{StartJitter: time.Hour, StartSeed: deviceSeed}},
		"in flight":                          {tr: &Transport{}, sent: 1},
		"in flight, with a timer":            {tr: &Transport{Retry: &RetryPolicy{AttemptTimeout: time.Hour}}, sent: 1},
		"in flight with another Base":        {tr: &Transport{Base: baseFunc(waitForContext)}, sent: 1, needsC: true},
		"in flight, with a timer, elsewhere": {tr: &Transport{Base: baseFunc(waitForContext), Retry: &RetryPolicy{AttemptTimeout: time.Hour}}, sent: 1},
	} {
		for _, how := range []string{"Request.Cancel", "CancelRequest"} {
			if tt.needsC && how == "CancelRequest" {
				continue
			}
			t.Run(name+" by "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := memhttp.NewServer(http.HandlerFunc(hangs))
					defer s.Close()
					var sent atomic.Int64
					if tt.tr == nil {
						tt.tr = &Transport{}
					}
					tr := &Transport{Base: tt.tr.Base, Limiter: tt.tr.Limiter, Retry: tt.tr.Retry, StartJitter: tt.tr.StartJitter, StartSeed: tt.tr.StartSeed}
					tr.Trace = &Trace{AttemptStart: func(*http.Request, AttemptStartInfo) { sent.Add(1) }}
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
					req, err := http.NewRequest("GET", s.URL, nil)
					require.NoError(t, err)
					req = req.WithContext(WithOptions(t.Context(), tt.opts))
					c := make(chan struct{})
					if how == "Request.Cancel" {
						setCancel(req, c)
					}
					start, done := time.Now(), make(chan error, 1)
					go func() {
						_, err := tr.RoundTrip(req)
						done <- err
					}()
					time.Sleep(time.Second)
					synctest.Wait()
					if how == "Request.Cancel" {
						close(c)
					} else {
						tr.CancelRequest(req)
					}
					select {
					case err = <-done:
					case <-time.After(time.Second):
						t.Fatal("it goes on")
					}
					require.Error(t, err)
					require.Equal(t, time.Second, time.Since(start))
					require.Equal(t, tt.sent, sent.Load())
					require.Zero(t, tr.cancellations.len())
				})
			})
		}
	}
}

// TestTransport_canceledBeforeStart checks that CancelRequest has no effect on a later
// call, and that a request whose Cancel channel is closed before the call is not sent.
func TestTransport_canceledBeforeStart(t *testing.T) {
	s := newScript(200)
	for _, limiter := range []throttle.Limiter{nil, throttle.AllowAll} {
		tr := &Transport{Base: s, Limiter: limiter}
		req := request(t, "GET", "")
		tr.CancelRequest(req)
		resp, err := tr.RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		resp.Body.Close()

		c := make(chan struct{})
		close(c)
		setCancel(req, c)
		_, err = tr.RoundTrip(req)
		require.ErrorIs(t, err, context.Canceled)
	}
	require.Equal(t, 2, s.sent())
}

// TestClient_timeoutIsATimeoutInEveryPhase checks that the caller gets a timeout error if
// http.Client.Timeout ends a call, in the queue or in flight. http.Client sets
// Request.Cancel and calls CancelRequest for it.
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

// len returns the number of registered requests.
func (r *cancelRegistry) len() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.active) + len(r.canceled)
}
