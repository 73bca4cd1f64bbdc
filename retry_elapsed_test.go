package heed

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// TestRetryPolicy_maxElapsedBoundsTheRetryPhase checks that MaxElapsed limits the time
// from the end of the first attempt to the start of the last. The limiter grants the
// first attempt after a minute and the second another minute later. Each attempt takes 20
// s, so the second begins 40 s after the end of the first.
func TestRetryPolicy_maxElapsedBoundsTheRetryPhase(t *testing.T) {
	for elapsed, tt := range map[time.Duration]struct {
		status, sent int
		took         time.Duration
	}{
		41 * time.Second: {200, 2, 140 * time.Second},
		39 * time.Second: {500, 1, 80 * time.Second}, // the wait is known to be too long, so it is not started
	} {
		synctest.Test(t, func(t *testing.T) {
			limiter := throttle.NewTokenBucket(throttle.PerMinute(1))
			_, err := limiter.Reserve(t.Context(), throttle.Claim{})
			require.NoError(t, err)
			s := newScript(respondAfter(20*time.Second, 500), respondAfter(20*time.Second, 200))
			resp, err := get(t, &Transport{Base: s, Limiter: limiter, Retry: &RetryPolicy{MaxElapsed: elapsed, Backoff: backoff.Constant(0)}})
			require.NoError(t, err)
			require.Equal(t, tt.status, resp.StatusCode)
			require.Equal(t, tt.sent, s.sent())
			require.Equal(t, tt.took, time.Since(s.start))
			info, ok := InfoFrom(resp)
			require.True(t, ok)
			require.Equal(t, tt.status == 500, errors.Is(info.StopReason, ErrMaxElapsed))
		})
	}
}

// TestRetryPolicy_maxElapsedEndsAWaitForAConfiguredLimit checks that a retry waits no
// longer than MaxElapsed for a limit with an unknown wait.
func TestRetryPolicy_maxElapsedEndsAWaitForAConfiguredLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slots := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
		s := newScript(func(r *http.Request) (*http.Response, error) {
			go func() { // takes the unit that the first attempt returns, and keeps it
				for {
					if d, err := slots.Reserve(t.Context(), throttle.Claim{}); err != nil || d.OK {
						return
					}
					time.Sleep(time.Millisecond)
				}
			}()
			return nil, errBroken
		})
		_, err := get(t, &Transport{Base: s, Limiter: slots, Retry: &RetryPolicy{MaxElapsed: 10 * time.Second, Backoff: backoff.Constant(time.Second)}})
		require.ErrorIs(t, err, ErrMaxElapsed)
		require.ErrorIs(t, err, errBroken)
		require.Equal(t, 10*time.Second, time.Since(s.start))
		require.Equal(t, 1, s.sent())
	})
}

// TestRetryPolicy_maxElapsedDefaultsTo15Minutes checks that by default no attempt
// begins more than 15 minutes after the end of the first, regardless of the waits that the
// server states.
func TestRetryPolicy_maxElapsedDefaultsTo15Minutes(t *testing.T) {
	for elapsed, last := range map[time.Duration]time.Duration{0: 12 * time.Minute, -1: 27 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(response{503, "", []string{"Retry-After", "180"}})
			exact := backoff.RetryAfterJitter{Rand: func() float64 { return 0 }}
			_, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{MaxElapsed: elapsed, MaxAttempts: 10, RetryAfterJitter: exact}})
			require.NoError(t, err)
			if elapsed == 0 {
				require.LessOrEqual(t, s.got[s.sent()-1].at, 15*time.Minute)
			}
			require.GreaterOrEqual(t, s.got[s.sent()-1].at, last)
		})
	}
}

// TestTransport_sendsOnceForACallerThatRetries checks that a request is sent once if its
// headers state that it is a retry of the program, or the first of several attempts of
// the program.
func TestTransport_sendsOnceForACallerThatRetries(t *testing.T) {
	for name, tt := range map[string]struct {
		header, value string
		sent          int
	}{
		"the first of an SDK that counts":     {"X-Stainless-Retry-Count", "0", 5},
		"its first retry":                     {"X-Stainless-Retry-Count", "1", 1},
		"no number":                           {"X-Stainless-Retry-Count", "x", 5},
		"the only attempt of an AWS SDK":      {"amz-sdk-request", "attempt=1; max=1", 5},
		"the first of three":                  {"amz-sdk-request", "attempt=1; max=3", 1},
		"the second":                          {"amz-sdk-request", "attempt=2", 1},
		"with a time, in another order":       {"amz-sdk-request", "ttl=20261121T120000Z; max=3; attempt=1", 1},
		"without spaces":                      {"amz-sdk-request", "attempt=1;max=2", 1},
		"the first, of which no more is said": {"amz-sdk-request", "attempt=1", 5},
		"another number":                      {"amz-sdk-request", "retry=5; attempt=1; max=1", 5},
		"nothing of the kind":                 {"amz-sdk-request", "; =;max;attempt=", 5},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(500)
			req := request(t, "GET", "")
			req.Header.Set(tt.header, tt.value)
			resp, err := (&Transport{Base: s}).RoundTrip(req)
			require.NoError(t, err, name)
			require.Equal(t, tt.sent, s.sent(), name)
			if tt.sent == 1 {
				_, ok := InfoFrom(resp)
				require.False(t, ok, name)
			}
		})
	}
}
