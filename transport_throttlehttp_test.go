package heed_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/heed-go/heed/warmup"
	"github.com/stretchr/testify/require"
)

// ownLimiters are the limiters of this project, each at about 20 requests per second.
var ownLimiters = map[string]func() throttle.Limiter{
	"token bucket": func() throttle.Limiter { return throttle.NewTokenBucket(throttle.PerSecond(20)) },
	"small burst": func() throttle.Limiter {
		return throttle.NewTokenBucket(throttle.Limit{Count: 20, Per: time.Second, Burst: 5})
	},
	"refill": func() throttle.Limiter {
		return throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: per2Seconds})
	},
	"leaky bucket": func() throttle.Limiter {
		return throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: per2Seconds})
	},
	"nginx": func() throttle.Limiter {
		return throttle.NewNginx(throttle.NginxConfig{Rate: 20, Per: time.Second, Burst: 20, NoDelay: true})
	},
	"clock window": func() throttle.Limiter {
		return throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 40, Per: 2 * time.Second})
	},
	"period": func() throttle.Limiter {
		return throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 40, Per: 2 * time.Second, Align: throttle.AtCreation})
	},
	"log": func() throttle.Limiter {
		return throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: per2Seconds})
	},
	"counter": func() throttle.Limiter {
		return throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: per2Seconds})
	},
	"sub-windows": func() throttle.Limiter {
		return throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: per2Seconds, Parts: 8})
	},
	"saved bursts": func() throttle.Limiter {
		return warmup.NewBursty(warmup.BurstyConfig{Limit: throttle.PerSecond(20)})
	},
	"warm-up": func() throttle.Limiter {
		return warmup.New(warmup.Config{Limit: throttle.PerSecond(20), Period: 2 * time.Second})
	},
	"five at a time": func() throttle.Limiter { return throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 5}) },
}

var per2Seconds = throttle.Limit{Count: 40, Per: 2 * time.Second}

// A countingTransport counts the requests that are sent after the first response, and how
// many of them are rejected.
type countingTransport struct {
	base           http.RoundTripper
	responded      atomic.Bool
	sent, rejected atomic.Int64
}

func (s *countingTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	counts := s.responded.Load()
	time.Sleep(time.Millisecond) // network latency
	resp, err := s.base.RoundTrip(req)
	s.responded.Store(true)
	if counts {
		s.sent.Add(1)
		if err == nil && resp.StatusCode == http.StatusTooManyRequests {
			s.rejected.Add(1)
		}
	}
	return resp, err
}

// TestTransport_isNeverRejectedByOurMiddleware checks that after the first response few
// requests are sent that the middleware rejects, for every algorithm and header format: those
// that test whether the statements are right. Headers do not describe how some algorithms restore
// units, so more are rejected there.
func TestTransport_isNeverRejectedByOurMiddleware(t *testing.T) {
	dialects := []headers.Dialect{0, headers.XRateLimit, headers.Draft03, headers.Draft10, headers.XRateLimit | headers.XRetryAfter}
	if testing.Short() {
		dialects = []headers.Dialect{headers.XRateLimit, headers.Draft10}
	}
	for name, limiter := range ownLimiters {
		for _, dialect := range dialects {
			// Headers of full seconds are consistent with a window, so about two runs in a hundred take a
			// bucket for one that is full again.
			obeys := false
			for range 3 {
				obeys = obeys || obeysOwn(t, name, limiter, dialect)
			}
			require.True(t, obeys, "%s, dialect %d: not in three runs", name, dialect)
		}
	}
}

// obeysOwn reports whether few requests are rejected by a Middleware with a limiter.
func obeysOwn(t *testing.T, name string, limiter func() throttle.Limiter, dialect headers.Dialect) (obeys bool) {
	synctest.Test(t, func(t *testing.T) {
		m := &throttlehttp.Middleware{Limiter: limiter(), Dialect: dialect}
		s := memhttp.NewServer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(5 * time.Millisecond)
			io.WriteString(w, "ok")
		})))
		defer s.Close()
		base := s.Transport()
		defer base.CloseIdleConnections()
		wire := &countingTransport{base: base}
		start := time.Now()
		failed := sendConcurrently(heed.NewClient(&heed.Transport{Base: wire}), s.URL)
		summary := fmt.Sprintf("%s, dialect %d: of %d sent after the first answer %d rejected, %d failed, %v",
			name, dialect, wire.sent.Load(), wire.rejected.Load(), failed, time.Since(start).Round(time.Millisecond))
		t.Log(summary)
		few := wire.sent.Load() / 20
		if slices.Contains([]string{"log", "counter", "nginx", "saved bursts", "warm-up", "five at a time"}, name) {
			few = wire.sent.Load() * 3 / 5
		}
		require.Zero(t, failed, summary)
		obeys = wire.rejected.Load() <= few
	})
	return obeys
}

// sendConcurrently sends 180 requests from 30 goroutines, which takes several windows. It
// returns the number of failed ones.
func sendConcurrently(client *http.Client, url string) int64 {
	var failed atomic.Int64
	var all sync.WaitGroup
	for range 30 {
		all.Go(func() {
			for range 6 {
				if _, status := roundTrip(client, url); status != http.StatusOK {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	return failed.Load()
}

// A server that states a limit in each response rejects few requests of callers that begin together if they wait for a limit
// of their own, and otherwise each of those that are sent before its first response once: nothing delays the requests to a
// new host (rule 8).
func TestTransport_ourMiddlewareBesideAnOwnLimit(t *testing.T) {
	for name, own := range map[string]throttle.Limiter{"none": nil, "20/s": throttle.NewTokenBucket(throttle.PerSecond(20))} {
		synctest.Test(t, func(t *testing.T) {
			const calls, window = 300, 50
			first := window // calls that are sent before the first response
			if own == nil {
				first = calls
			}
			s := &heedtest.Server{
				Limit: &throttlehttp.Middleware{Limiter: throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: window, Per: 10 * time.Second})},
				Key:   func(r *http.Request) string { return r.Header.Get(callHeader) },
			}
			s.StartInMemory()
			defer s.Close()
			tr := &heed.Transport{Base: s.Transport(), Limiter: own}
			c := heed.NewClient(tr)
			start := time.Now()
			var failed atomic.Int64
			var wg sync.WaitGroup
			for i := range calls {
				wg.Go(func() {
					if !callOnce(t.Context(), c, s.URL+"/items", fmt.Sprint(i)) {
						failed.Add(1)
					}
				})
			}
			wg.Wait()
			require.Zero(t, failed.Load(), name)
			require.Empty(t, s.EarlyRetries(), name)
			require.LessOrEqual(t, len(s.Requests())-calls, first-window+15, "%s: tests of what the server states", name)
			require.Less(t, time.Since(start), 60*time.Second, name)
			tr.CloseIdleConnections()
		})
	}
}
