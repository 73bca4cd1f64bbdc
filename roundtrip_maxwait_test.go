package heed

import (
	"context"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTransport_rejectsQueuedCallersWhenRetryAfterIsTooLong sends ten requests, of which
// four are in flight when the server states a Retry-After of an hour. No request waits
// for that: the four get the response, and the queued and all later ones get an error
// that states how long the host is held.
func TestTransport_rejectsQueuedCallersWhenRetryAfterIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(response{429, "in an hour", []string{"Retry-After", "3600"}})
		const rtt = 50 * time.Millisecond // less than 100 ms, else a fifth request would be sent before a response
		tr := &Transport{Base: baseFunc(func(r *http.Request) (*http.Response, error) {
			time.Sleep(rtt)
			return s.RoundTrip(r)
		})}
		start := time.Now()
		var mu sync.Mutex
		answered := 0
		var refusals []error
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				resp, err := get(t, tr)
				mu.Lock()
				defer mu.Unlock()

				assert.Equal(t, rtt, time.Since(start))
				if err == nil {
					answered++
					body, err := io.ReadAll(resp.Body)
					assert.NoError(t, err)
					assert.Equal(t, "in an hour", string(body))
					return
				}
				refusals = append(refusals, err)
			})
		}
		wg.Wait()
		require.Equal(t, []int{4, 6, 4}, []int{answered, len(refusals), s.sent()})
		for _, err := range refusals {
			requireHeld(t, err, ErrMaxWait)
		}

		_, err := get(t, tr)
		requireHeld(t, err, ErrMaxWait)
		for in, why := range map[time.Duration]error{30 * time.Minute: context.DeadlineExceeded, 2 * time.Hour: ErrMaxWait} {
			ctx, cancel := context.WithTimeout(t.Context(), in)
			_, err = tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
			requireHeld(t, err, why)
			cancel()
		}
		require.Equal(t, rtt, time.Since(start), "nobody waited")

		s.steps = []any{200}
		resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{MaxWait: 2 * time.Hour})))
		require.NoError(t, err, "who wants to wait so long may")
		require.Equal(t, 200, resp.StatusCode)
		require.GreaterOrEqual(t, time.Since(start), time.Hour)
	})
}

// requireHeld checks that err states how long the server is held, and why the request
// does not wait for that.
func requireHeld(t *testing.T, err, why error) {
	t.Helper()
	var gaveUp *GiveUpError
	var refused *throttle.RefusedError
	require.ErrorAs(t, err, &gaveUp)
	require.Empty(t, gaveUp.Attempts)
	require.ErrorIs(t, err, why)
	require.ErrorIs(t, err, throttle.ErrRefused)
	require.ErrorAs(t, err, &refused)
	require.GreaterOrEqual(t, refused.Decision.Wait, time.Hour)
	require.ErrorContains(t, err, "api.test: retry-after")
	require.ErrorContains(t, err, "ask again in 1h0m")
}

// TestTransport_waitsUpToMaxWait checks that a wait of exactly MaxWait is not too long,
// although the Tracker adds a small time to it.
func TestTransport_waitsUpToMaxWait(t *testing.T) {
	for _, retryAfter := range []string{"120", "1"} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(response{429, "", []string{"Retry-After", retryAfter}}, 200)
			seconds, err := time.ParseDuration(retryAfter + "s")
			require.NoError(t, err)
			resp, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{MaxWait: seconds}})
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
		tr := &Transport{Base: s}
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
