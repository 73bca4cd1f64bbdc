package heed

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

func TestClassifyError_ofNames(t *testing.T) {
	for _, tt := range []struct {
		err  net.DNSError
		want retryClass
	}{
		{net.DNSError{}, retryAlways}, {net.DNSError{IsTimeout: true}, retryAlways}, {net.DNSError{IsTemporary: true}, retryAlways},
		{net.DNSError{IsNotFound: true}, retryNever}, {net.DNSError{IsNotFound: true, IsTemporary: true}, retryAlways}, {net.DNSError{IsNotFound: true, IsTimeout: true}, retryAlways},
	} {
		require.Equal(t, tt.want, classifyError(&tt.err), "%+v", tt.err)
	}
}

// TestRetryable_knowsTheHost checks a status that is a rejection at one host only.
func TestRetryable_knowsTheHost(t *testing.T) {
	for host, want := range map[string]bool{"api.binance.com": true, "api.test": false} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+host+"/order", nil)
		require.NoError(t, err)
		require.Equal(t, want, Retryable(req, &http.Response{StatusCode: http.StatusTeapot}, nil), host)
	}
}

// TestTransport_retriesAnAttemptTimeoutThatBaseReportsAsCanceled checks a Base that returns
// context.Canceled when the context of an attempt ends, as many do: the caller has not canceled.
func TestTransport_retriesAnAttemptTimeoutThatBaseReportsAsCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		base := baseFunc(func(r *http.Request) (*http.Response, error) {
			sent++
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		start := time.Now()
		_, err := get(t, &Transport{Base: base, Retry: &RetryPolicy{MaxAttempts: 3, Backoff: threeAttempts().Backoff, AttemptTimeout: time.Second}})
		require.ErrorIs(t, err, errAttemptTimeout)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, context.Canceled)
		require.Equal(t, 3, sent)
		require.Equal(t, 5*time.Second, time.Since(start))
	})
}

// TestTransport_waitsForADelayInABody checks a rejection that states its delay in the body only.
func TestTransport_waitsForADelayInABody(t *testing.T) {
	for _, status := range []int{429, 503} {
		synctest.Test(t, func(t *testing.T) {
			s, start := newScript(response{status, `{"code":"rate_limited","retry_after":7}`, []string{"Content-Type", "application/json"}}, 200), time.Now()
			resp, err := (&Transport{Base: s}).RoundTrip(request(t, "POST", "order"))
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			require.GreaterOrEqual(t, time.Since(start), 7*time.Second)
			require.Less(t, time.Since(start), 8*time.Second)
		})
	}
}

func TestNewClient_withoutATransport(t *testing.T) {
	c := NewClient(nil)
	tr, ok := c.Transport.(*Transport)
	require.True(t, ok)
	require.NotNil(t, tr)
	require.NotNil(t, tr.Parts().Queue)
	own := new(Transport)
	require.Same(t, own, NewClient(own).Transport)
}

func TestGiveUpError_method(t *testing.T) {
	for method, want := range map[string]string{"": "GET", "PUT": "PUT"} {
		req := request(t, "GET", "")
		req.Method = method
		_, err := (&Transport{Base: newScript(errConnRefused), Retry: &RetryPolicy{MaxAttempts: 2, Backoff: threeAttempts().Backoff}, Clock: instantClock{}}).RoundTrip(req)
		var e *GiveUpError
		require.ErrorAs(t, err, &e)
		require.Equal(t, want, e.Method)
	}
}

// An instantClock has timers that fire immediately.
type instantClock struct{}

func (instantClock) Now() time.Time { return time.Now() }
func (instantClock) After(time.Duration) <-chan time.Time {
	c := make(chan time.Time, 1)
	c <- time.Now()
	return c
}

// TestTransport_releasesAbandonedBodiesWhileOthersBegin checks that a steady stream of responses
// does not put off the release of a claim whose context has ended.
func TestTransport_releasesAbandonedBodiesWhileOthersBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 100})
		tr := &Transport{Base: smallBodies{}, Limiter: limit}
		inUse := func() int64 {
			d, err := limit.Reserve(t.Context(), throttle.Claim{DryRun: true, Cost: 100})
			require.NoError(t, err)
			return 100 - d.Remaining
		}
		lasting, stop := context.WithCancel(t.Context())
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.NoError(t, err)
		var bodies []*http.Response
		for i := range 10 {
			if i == 2 {
				cancel()
			}
			time.Sleep(abandonedAfter / 2)
			synctest.Wait()
			resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(lasting))
			require.NoError(t, err)
			bodies = append(bodies, resp)
			if i >= 4 {
				require.EqualValues(t, len(bodies), inUse(), "the abandoned one is released, step %d", i)
			}
		}
		for _, resp := range bodies {
			require.NoError(t, resp.Body.Close())
		}
		require.Zero(t, inUse())
	})
}

// TestTrace_retryDelayBeginsAfterTheFirstAttempt checks that the waits before the first attempt are
// no part of DoneInfo.RetryDelay.
func TestTrace_retryDelayBeginsAfterTheFirstAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []DoneInfo
		tr := &Transport{
			Base:    newScript(200, 503, 200),
			Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: 5 * time.Second}),
			Retry:   threeAttempts(),
			Trace:   &Trace{Done: func(_ *http.Request, i DoneInfo) { got = append(got, i) }},
		}
		for range 2 {
			_, err := get(t, tr)
			require.NoError(t, err)
		}
		require.Equal(t, []time.Duration{0, 0, 0}, []time.Duration{got[0].QueueWait, got[0].BackoffWait, got[0].RetryDelay})
		require.Equal(t, []time.Duration{9 * time.Second, time.Second, 5 * time.Second}, []time.Duration{got[1].QueueWait, got[1].BackoffWait, got[1].RetryDelay})
	})
}

// TestTransport_cancellationOfALaterAttemptIsTheReason checks the Reason of a request that its caller
// cancels during the first, the second and the third attempt.
func TestTransport_cancellationOfALaterAttemptIsTheReason(t *testing.T) {
	for attempt := 1; attempt <= 3; attempt++ {
		synctest.Test(t, func(t *testing.T) {
			gone := errors.New("gone")
			ctx, cancel := context.WithCancelCause(t.Context())
			sent := 0
			base := baseFunc(func(r *http.Request) (*http.Response, error) {
				if sent++; sent < attempt {
					return newResponse(503, ""), nil
				}
				cancel(gone)
				return nil, r.Context().Err()
			})
			_, err := (&Transport{Base: base, Retry: threeAttempts()}).RoundTrip(request(t, "GET", "").WithContext(ctx))
			var e *GiveUpError
			require.Equal(t, attempt > 1, errors.As(err, &e), "%v", err)
			if attempt > 1 {
				require.Equal(t, gone, e.Reason)
				require.Len(t, e.Attempts, attempt)
			} else {
				require.ErrorIs(t, err, context.Canceled)
			}
		})
	}
}

// TestTransport_negativeSettingsMeanNone checks settings whose negative values mean no limit.
func TestTransport_negativeSettingsMeanNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tr := &Transport{
			Base:        newScript(respondAfter(time.Second, 503), respondAfter(time.Second, 200)),
			Limiter:     throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: 10 * time.Minute}),
			StartJitter: -1,
			Retry:       &RetryPolicy{AttemptTimeout: -1, MaxElapsed: -1, Backoff: threeAttempts().Backoff},
		}
		resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{MaxWait: -1})))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, 10*time.Minute+time.Second, time.Since(start))
	})
}
