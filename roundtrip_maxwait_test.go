package heed

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTransport_rejectsQueuedCallersWhenRetryAfterIsTooLong sends ten requests to a server that
// states a Retry-After of an hour. No request waits for that: each of them gets the response.
// Later ones get it, too, until it is known that others are rejected, and a test has shown that they
// still are. From then on they get an error that states how long the host is held.
func TestTransport_rejectsQueuedCallersWhenRetryAfterIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(response{429, "in an hour", []string{"Retry-After", "3600"}})
		tr := &Transport{Base: baseFunc(func(r *http.Request) (*http.Response, error) {
			time.Sleep(50 * time.Millisecond)
			return s.RoundTrip(r)
		})}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				resp, err := get(t, tr)
				if !assert.NoError(t, err) {
					return
				}
				body, err := io.ReadAll(resp.Body)
				assert.NoError(t, err)
				assert.Equal(t, "in an hour", string(body))
			})
		}
		wg.Wait()
		sent := s.sent()
		for range 6 { // four that confirm it, and a test
			resp, err := get(t, tr)
			if err != nil {
				break
			}
			require.Equal(t, 429, resp.StatusCode)
			sent++
		}
		require.Equal(t, sent, s.sent())

		start := time.Now()
		_, err := tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{NoWait: true})))
		require.ErrorIs(t, err, ErrMaxWait)
		require.Zero(t, time.Since(start))
		_, err = get(t, tr)
		requireHeld(t, err, ErrMaxWait)
		for in, why := range map[time.Duration]error{30 * time.Minute: context.DeadlineExceeded, 2 * time.Hour: ErrMaxWait} {
			ctx, cancel := context.WithTimeout(t.Context(), in)
			_, err = tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
			requireHeld(t, err, why)
			cancel()
		}
		require.Equal(t, 3*50*time.Millisecond, time.Since(start), "no call fails sooner than the server would reject it: one test shows only that the wait is not over")
		require.Equal(t, sent, s.sent())

		s.steps = []any{200}
		resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{MaxWait: 2 * time.Hour})))
		require.NoError(t, err, "who wants to wait so long may")
		require.Equal(t, 200, resp.StatusCode)
		require.LessOrEqual(t, time.Since(start), 2*time.Second, "it is the next test")
	})
}

// requireHeld checks that err states how long the server is held, and why the request
// does not wait for that.
func requireHeld(t *testing.T, err, why error) {
	t.Helper()
	var gaveUp *GiveUpError
	var rejected *throttle.RejectedError
	require.ErrorAs(t, err, &gaveUp)
	require.Empty(t, gaveUp.Attempts)
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, err, throttle.ErrRejected)
	require.ErrorAs(t, err, &rejected)
	require.InDelta(t, time.Hour, rejected.Decision.Wait, float64(time.Second))
	require.ErrorContains(t, err, "api.test: retry-after")
	require.ErrorContains(t, err, "ask again in ")
}

// TestTransport_waitsUpToMaxWait checks that a wait of exactly MaxWait is not too long,
// although the Tracker adds a small time to it.
func TestTransport_waitsUpToMaxWait(t *testing.T) {
	for _, retryAfter := range []string{"120", "1"} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(response{429, "", []string{"Retry-After", retryAfter}}, 200)
			seconds, err := time.ParseDuration(retryAfter + "s")
			require.NoError(t, err)
			resp, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{MaxServerWait: seconds}})
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode, retryAfter)
		})
	}
}

// TestTransport_waitsForConfiguredLimitsWithoutMaxWait checks that a configured limit may
// make a request wait as long as its context allows.
func TestTransport_waitsForConfiguredLimitsWithoutMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(200)
		tr := &Transport{Base: s, Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Hour})}
		for range 2 {
			_, err := get(t, tr)
			require.NoError(t, err)
		}
		require.Equal(t, []time.Duration{time.Hour}, s.gaps())
	})
}

// TestTransport_rejectsWaitsForAQuotaBeyondMaxWait checks that a quota that headers state
// as exhausted has the same effect as a rejection.
func TestTransport_rejectsWaitsForAQuotaBeyondMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(response{200, "", []string{"X-RateLimit-Limit", "60", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3000"}})
		tr := &Transport{Base: s, Quota: &quota.Tracker{NeverTest: true}}
		_, err := get(t, tr)
		require.NoError(t, err)
		_, err = get(t, tr)
		require.ErrorIs(t, err, ErrMaxWait)
		require.Equal(t, 1, s.sent())
		require.Zero(t, time.Since(s.start))
	})
}

// TestTransport_rejectionOfARouteDoesNotDelayOthers checks that a rejection of one route
// does not delay requests to another route with a quota of its own.
func TestTransport_rejectionOfARouteDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := &Transport{Base: baseFunc(func(r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/search" {
				return newResponse(429, "", "Retry-After", "60"), nil
			}
			return newResponse(200, ""), nil
		})}
		ask := func(path string) int {
			req, err := http.NewRequestWithContext(WithOptions(t.Context(), RequestOptions{NoRetry: true}), "GET", "http://api.test"+path, nil)
			require.NoError(t, err)
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			return resp.StatusCode
		}
		start := time.Now()
		require.Equal(t, 200, ask("/items/1"))
		require.Equal(t, 429, ask("/search"))
		for range 20 {
			require.Equal(t, 200, ask("/items/2"))
			require.Equal(t, 200, ask("/users"))
		}
		require.Zero(t, time.Since(start))
	})
}
