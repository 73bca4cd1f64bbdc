package heed

import (
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota"
)

// TestTransport_testsAHoldOfAnHour checks that a rejection with a very distant end is
// returned immediately and unchanged. The end may be a mistake of the server that would
// hold the host for long, so it is tested: by one request at intervals that grow by half,
// because a server may extend its ban with each request. All other requests fail without being
// sent.
func TestTransport_testsAHoldOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour = time.Hour
		start := time.Now()
		s := newScript(func(*http.Request) (*http.Response, error) {
			left := time.Until(start.Add(hour))
			if left <= 0 {
				return newResponse(200, ""), nil
			}
			return newResponse(429, "come back in an hour", "Retry-After", strconv.Itoa(int(left/time.Second))), nil
		})
		tr := &Transport{Base: baseFunc(func(r *http.Request) (*http.Response, error) {
			defer time.Sleep(100 * time.Millisecond)
			return s.RoundTrip(r)
		})}
		resp, err := get(t, tr)
		require.NoError(t, err)
		require.Equal(t, "come back in an hour", text(t, resp))
		for time.Since(start) < hour {
			sent := s.sent()
			_, err := get(t, tr)
			if s.sent() == sent {
				require.ErrorIs(t, err, ErrMaxWait)
			}
			time.Sleep(500 * time.Millisecond)
		}
		require.LessOrEqual(t, s.sent(), 30, "the first five, and tests after 1, 1.5, ... s")
		time.Sleep(time.Hour)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				resp, err := get(t, tr)
				if err != nil || resp.StatusCode != 200 {
					t.Error(err, resp)
				}
			})
		}
		wg.Wait()
	})
}

// TestTransport_learnsThatRetryAfterIsTooShort checks that a server that repeatedly
// states one second and means eight gets retries at growing intervals, none of them early.
func TestTransport_learnsThatRetryAfterIsTooShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := newScript(func(*http.Request) (*http.Response, error) {
			if time.Since(start) < 8*time.Second {
				return newResponse(429, "", "Retry-After", "1"), nil
			}
			return newResponse(200, ""), nil
		})
		resp, err := get(t, &Transport{Base: s})
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.LessOrEqual(t, s.sent(), 9, "the first, and at most one each second")
		spread := time.Second / 2 // of RetryAfterJitter
		for _, gap := range s.gaps() {
			require.GreaterOrEqual(t, gap, time.Second, "never earlier than stated")
			require.LessOrEqual(t, gap, time.Second+spread)
			spread = min(2*spread, 2*time.Second)
		}
	})
}

// TestTransport_aBacklogOfRejectedCalls checks that what has been rejected does not come back all together when a window
// begins: 1,000 calls that come in 10 s, and a server that permits 50 in each 10 s and states in rejections only when the next window begins.
// Its latency varies, so that it receives requests in another order than they were sent in.
func TestTransport_aBacklogOfRejectedCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, permits, window = 1000, 50, 10 * time.Second
		start := time.Now()
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(1, 2))
		current, used, rejected := time.Duration(-1), 0, 0
		tr := &Transport{Quota: &quota.Tracker{}, Base: baseFunc(func(*http.Request) (*http.Response, error) {
			mu.Lock()
			latency := time.Duration(float64(100*time.Millisecond) * math.Exp(random.NormFloat64()))
			mu.Unlock()
			time.Sleep(latency / 2)
			defer time.Sleep(latency / 2)
			mu.Lock()
			defer mu.Unlock()
			now := time.Since(start)
			if w := now / window; w != current {
				current, used = w, 0
			}
			if used++; used > permits {
				rejected++
				return newResponse(429, "", "Retry-After", strconv.Itoa(int(((current+1)*window-now+time.Second-1)/time.Second))), nil
			}
			return newResponse(200, ""), nil
		})}
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				resp, err := get(t, tr)
				if err != nil || resp.StatusCode != 200 {
					t.Error(err, resp)
				}
			})
			time.Sleep(10 * time.Millisecond)
		}
		wg.Wait()
		require.LessOrEqual(t, rejected, 2*calls) // about 200; a test that is accepted early, which is rare, costs a few hundred once
		require.LessOrEqual(t, time.Since(start), calls/permits*window*5/4)
	})
}

// TestTransport_aCrowdOnASlowServer checks that a limit is obeyed that the server states to a crowd, all of which but two it
// rejects: then all requests have been rejected before. What it accepts takes longer than a window lasts.
func TestTransport_aCrowdOnASlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls, permits = 200, 2
		start := time.Now()
		var mu sync.Mutex
		current, used, rejected := time.Duration(-1), 0, 0
		tr := &Transport{Base: baseFunc(func(*http.Request) (*http.Response, error) {
			mu.Lock()
			if w := time.Since(start) / time.Second; w != current {
				current, used = w, 0
			}
			used++
			n := used
			if n > permits {
				rejected++
			}
			mu.Unlock()
			if n > permits {
				time.Sleep(time.Second / 20)
			} else {
				time.Sleep(6 * time.Second)
			}
			h := []string{"RateLimit-Policy", `"default";q=2;w=1`, "RateLimit", fmt.Sprintf(`"default";r=%d;t=0`, max(permits-n, 0))}
			if n > permits {
				return newResponse(429, "", append(h, "Retry-After", "1")...), nil
			}
			return newResponse(200, "", h...), nil
		})}
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() {
				resp, err := get(t, tr)
				if err != nil || resp.StatusCode != 200 {
					t.Error(err, resp)
				}
			})
		}
		wg.Wait()
		require.LessOrEqual(t, rejected, 3*calls)
	})
}

// TestTransport_aWaitThatIsTooLong checks a server with one request in flight, whose rejections state a wait of a second, seven times
// as long as most responses take: calls take about as long, and fail about as seldom, as without the Tracker.
func TestTransport_aWaitThatIsTooLong(t *testing.T) {
	mean := map[quota.Mode]time.Duration{}
	failed := map[quota.Mode]int{}
	const calls, seeds = 900, 10
	for seed := range uint64(seeds) {
		for _, mode := range []quota.Mode{quota.StatedOnly, quota.Disabled} {
			synctest.Test(t, func(t *testing.T) {
				random, gaps := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
				var mu sync.Mutex
				busy := false
				tr := &Transport{Quota: &quota.Tracker{Mode: mode}, Base: baseFunc(func(*http.Request) (*http.Response, error) {
					mu.Lock()
					rejected, latency := busy, 140*time.Millisecond
					if busy = true; random.IntN(33) == 0 {
						latency *= 13
					}
					mu.Unlock()
					if rejected {
						time.Sleep(20 * time.Millisecond)
						return newResponse(429, "", "Retry-After", "1"), nil
					}
					time.Sleep(latency)
					mu.Lock()
					busy = false
					mu.Unlock()
					return newResponse(200, ""), nil
				})}
				var wg sync.WaitGroup
				var sum time.Duration
				for range calls {
					time.Sleep(time.Duration(gaps.ExpFloat64() * float64(350*time.Millisecond)))
					wg.Go(func() {
						start := time.Now()
						resp, err := get(t, tr)
						mu.Lock()
						defer mu.Unlock()
						if sum += time.Since(start); err != nil || resp.StatusCode != 200 {
							failed[mode]++
						}
					})
				}
				wg.Wait()
				mean[mode] += sum / calls / seeds
			})
		}
	}
	t.Logf("with the Tracker %s on average, %d failed; without it %s, %d", mean[quota.StatedOnly], failed[quota.StatedOnly], mean[quota.Disabled], failed[quota.Disabled])
	require.LessOrEqual(t, mean[quota.StatedOnly], mean[quota.Disabled]*2)
	require.LessOrEqual(t, failed[quota.StatedOnly], failed[quota.Disabled]+seeds*calls*12/1000)
}

// TestTransport_ignoresASingleClosedConnection checks that a single closed connection
// does not count as a rejection and delays no other request.
func TestTransport_ignoresASingleClosedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(200, 200, 200, io.ErrUnexpectedEOF, 200)
		tr := &Transport{Base: s, Retry: &RetryPolicy{MaxAttempts: -1}}
		start := time.Now()
		failed := 0
		for range 10 {
			if _, err := get(t, tr); err != nil {
				failed++
			}
		}
		require.Equal(t, 1, failed)
		require.Zero(t, time.Since(start))
	})
}

// TestTransport_readsResetsOfASlowServer checks a server that takes 20 s, and dates its responses when the request arrives, as Apache
// does, or when it responds. A reset that it states as Unix time is read as it is, since its clock is that of the client.
func TestTransport_readsResetsOfASlowServer(t *testing.T) {
	for name, early := range map[string]bool{"dated at the arrival": true, "dated with the response": false} {
		synctest.Test(t, func(t *testing.T) {
			reset, tracker := time.Now().Add(time.Hour), new(quota.Tracker)
			tr := &Transport{Quota: tracker, Base: baseFunc(func(*http.Request) (*http.Response, error) {
				date := time.Now()
				if time.Sleep(20 * time.Second); !early {
					date = time.Now()
				}
				return newResponse(200, "", "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "50",
					"X-RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10), "Date", date.UTC().Format(http.TimeFormat)), nil
			})}
			for range 2 {
				_, err := get(t, tr)
				require.NoError(t, err)
			}
			limit := tracker.Snapshot(1).Shown[0].Quotas[0].Limits[0]
			require.True(t, limit.Reset.Equal(reset), "%s: %v", name, limit.Reset.Sub(reset))
		})
	}
}
