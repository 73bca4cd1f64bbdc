package heed

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTransport_retryAfterZeroDoesNotDelayOtherCallers checks that 2000 concurrent
// requests finish within 0.1 s if the server rejects one in a hundred with Retry-After:
// 0.
func TestTransport_retryAfterZeroDoesNotDelayOtherCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent, failed atomic.Int64
		tr := &Transport{Quota: &quota.Tracker{}, Base: baseFunc(func(*http.Request) (*http.Response, error) {
			time.Sleep(time.Millisecond)
			if sent.Add(1)%100 == 0 {
				return newResponse(429, "", "Retry-After", "0"), nil
			}
			return newResponse(200, ""), nil
		})}
		start := time.Now()
		var wg sync.WaitGroup
		for range 2000 {
			wg.Go(func() {
				if resp, err := get(t, tr); err != nil || resp.StatusCode != 200 {
					failed.Add(1)
				}
			})
		}
		wg.Wait()
		require.Zero(t, failed.Load())
		require.LessOrEqual(t, time.Since(start), 100*time.Millisecond)
	})
}

// TestTransport_retriesImmediatelyAfterRetryAfterZero checks that the first Retry-After
// of 0 is obeyed, and that later ones are delayed by a tenth of the delay of Backoff,
// which grows.
func TestTransport_retriesImmediatelyAfterRetryAfterZero(t *testing.T) {
	for _, status := range []int{429, 503} {
		synctest.Test(t, func(t *testing.T) {
			rejection := response{status, "", []string{"Retry-After", "0"}}
			s := newScript(rejection, rejection, rejection, rejection, 200)
			second := backoff.Exponential{Base: time.Second, Jitter: backoff.None}
			resp, err := (&Transport{Base: s, Retry: &RetryPolicy{Backoff: second, MaxAttempts: 10}}).RoundTrip(request(t, "POST", "x"))
			require.NoError(t, err)
			require.Equal(t, 200, resp.StatusCode)
			gaps := s.gaps()
			require.Less(t, gaps[0], 10*time.Millisecond)
			for i, want := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond} {
				require.InDelta(t, want, gaps[i+1], float64(10*time.Millisecond), status)
			}
		})
	}
}

// TestTransport_obeysTheResetBesideARetryAfterOfZero checks that no call is repeated before the reset of the limit that
// rejected it, if Retry-After states 0 or an instant in the past.
func TestTransport_obeysTheResetBesideARetryAfterOfZero(t *testing.T) {
	for _, retryAfter := range []string{"", "0", "Mon, 01 Jan 1990 00:00:00 GMT"} {
		synctest.Test(t, func(t *testing.T) {
			const limit, window = 20, 10 * time.Second
			var mu sync.Mutex
			var reset time.Time
			used, early, failed := 0, 0, 0
			rejected := map[string]time.Time{} // when calls that were rejected may be repeated
			tr := &Transport{Base: baseFunc(func(r *http.Request) (*http.Response, error) {
				time.Sleep(20 * time.Millisecond)
				mu.Lock()
				defer mu.Unlock()
				now, call := time.Now(), r.URL.RawQuery
				if !now.Before(reset) {
					used, reset = 0, now.Add(window)
				}
				if now.Before(rejected[call]) {
					early++
				}
				if used < limit {
					used++
					return newResponse(200, ""), nil
				}
				seconds := int((reset.Sub(now) + time.Second - 1) / time.Second)
				rejected[call] = now.Add(time.Duration(seconds-1) * time.Second) // resets are in whole seconds
				return newResponse(429, "", "Retry-After", retryAfter, "X-RateLimit-Limit", strconv.Itoa(limit), "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.Itoa(seconds)), nil
			})}
			var wg sync.WaitGroup
			for i := range 100 {
				wg.Go(func() {
					req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://api.test/?"+strconv.Itoa(i), nil)
					if err == nil {
						var resp *http.Response
						if resp, err = tr.RoundTrip(req); err == nil && resp.StatusCode != 200 {
							err = errors.New(resp.Status)
						}
					}
					if err != nil {
						mu.Lock()
						failed++
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			require.Zero(t, early, "repeated before the reset, Retry-After: %q", retryAfter)
			require.Zero(t, failed)
		})
	}
}

// TestTransport_retryAfterZeroDoesNotPassAUsedUpLimit checks that a Retry-After of 0, or in the past, does not make the
// calls of the next seconds go beyond a limit that accepted responses have stated to be used up.
func TestTransport_retryAfterZeroDoesNotPassAUsedUpLimit(t *testing.T) {
	for _, mode := range []quota.Mode{quota.Full, quota.StatedOnly} {
		for _, retryAfter := range []string{"0", "Mon, 01 Jan 1990 00:00:00 GMT"} {
			for workers, most := range map[int]int{1: 6, 30: 18} { // 10 of 30 are rejected before any response has arrived
				synctest.Test(t, func(t *testing.T) {
					const limit, window = 20, 5 * time.Second
					var reset time.Time
					used, rejected := 0, 0
					var mu sync.Mutex // guards the variables above
					tr := &Transport{Quota: &quota.Tracker{Mode: mode}, Base: baseFunc(func(*http.Request) (*http.Response, error) {
						time.Sleep(10 * time.Millisecond)
						mu.Lock()
						defer mu.Unlock()
						now := time.Now()
						if !now.Before(reset) {
							used, reset = 0, now.Add(window)
						}
						if used == limit {
							rejected++
							return newResponse(429, "", "Retry-After", retryAfter), nil
						}
						used++
						seconds := int((reset.Sub(now) + time.Second - 1) / time.Second)
						return newResponse(200, "", "X-RateLimit-Limit", "20", "X-RateLimit-Remaining", strconv.Itoa(limit-used), "X-RateLimit-Reset", strconv.Itoa(seconds)), nil
					})}
					var wg sync.WaitGroup
					var calls atomic.Int64
					for range workers {
						wg.Go(func() {
							for calls.Add(1) <= 100 {
								if resp, err := get(t, tr); assert.NoError(t, err) {
									assert.Equal(t, 200, resp.StatusCode)
								}
							}
						})
					}
					wg.Wait()
					require.LessOrEqual(t, rejected, most, "mode %v, Retry-After: %s, %d workers", mode, retryAfter, workers)
				})
			}
		}
	}
}

// TestTransport_retryAfterJitterRaisesRetryAfterZero checks that RetryAfterJitter.Min is
// the delay for a Retry-After of 0.
func TestTransport_retryAfterJitterRaisesRetryAfterZero(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(response{429, "", []string{"Retry-After", "0"}}, 200)
		exact := backoff.RetryAfterJitter{Min: 3 * time.Second, Rand: func() float64 { return 0 }}
		_, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{RetryAfterJitter: exact}})
		require.NoError(t, err)
		require.Equal(t, []time.Duration{3 * time.Second}, s.gaps())
	})
}
