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

// TestTransport_rejectsQueuedCallersWhenRetryAfterIsTooLong has ten callers, of which four are on
// their way when the server says to come back in an hour. Nobody waits for that in
// silence: the four have the answer, and those in line and those who come later an
// error that says for how long it is shut.
func TestTransport_rejectsQueuedCallersWhenRetryAfterIsTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(response{429, "in an hour", []string{"Retry-After", "3600"}})
		const rtt = 50 * time.Millisecond // less than 100 ms, or a fifth request would be sent without a response
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

// requireHeld checks that err says for how long the server is shut, and why nobody
// waits for that.
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

// What is told in just MaxWait is waited for, though the Tracker adds a little.
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

// A limit of our own may make a request wait for as long as its context allows.
func TestTransport_waitsForConfiguredLimitsWithoutMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(200)
		tr := &Transport{Base: s, Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Hour}, nil)}
		for range 2 {
			_, err := get(t, tr)
			require.NoError(t, err)
		}
		require.Equal(t, []time.Duration{time.Hour}, s.gaps())
	})
}

// A quota that is used up, as headers say, is told just as a refusal is.
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

// Two routes have quotas of their own: who asks for one is not held up, not for a
// moment, by what the server said of the other.
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
