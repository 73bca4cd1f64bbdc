package throttleredis_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/heed-go/heed/throttleredis"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// A concurrencyGauge counts operations in flight, their maximum and their total.
type concurrencyGauge struct{ total, current, max atomic.Int64 }

func (g *concurrencyGauge) enter() (leave func()) {
	g.total.Add(1)
	n := g.current.Add(1)
	for m := g.max.Load(); n > m && !g.max.CompareAndSwap(m, n); m = g.max.Load() {
	}
	return func() { g.current.Add(-1) }
}

// RoundTripper returns rt, measured by g.
func (g *concurrencyGauge) RoundTripper(rt http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		defer g.enter()()
		return rt.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A tripBreaker is a heed.Breaker that opens permanently after ten failures.
type tripBreaker struct{ failures atomic.Int64 }

var errTripped = errors.New("the breaker is open")

func (f *tripBreaker) Allow() (func(error), error) {
	if f.failures.Load() >= 10 {
		return nil, errTripped
	}
	return func(err error) {
		if err != nil {
			f.failures.Add(1)
		}
	}, nil
}

// inParallel runs f on 32 goroutines, n times each.
func inParallel(n int, f func()) {
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range n {
				f()
			}
		})
	}
	wg.Wait()
}

// get returns the status of a response of url, or 0 if there was none.
func get(c *http.Client, url string) int {
	resp, err := c.Get(url)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// Redis is down, and its limits admit all requests. The number of requests in flight is
// still limited on both sides. When the API does not respond either, the timeout of an
// attempt ends the calls, and the breaker stops further ones.
func TestFallback_openLimitsLeaveTheLoadBounded(t *testing.T) {
	redis := redistest.Start(t)
	client := connect(t, redis.Addr)
	redis.Kill()
	open := func(name string) *throttleredis.Fallback {
		store := &throttleredis.Store{Client: client, Prefix: name}
		return &throttleredis.Fallback{Limiter: store.TokenBucket(throttle.PerHour(1))}
	}

	var serving, sending concurrencyGauge
	var hangs atomic.Bool
	const allPlaces = 16 // more than the attempts before the breaker is open, however late the server notices that one has ended
	places, limit := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: allPlaces}), open("server")
	middleware := &throttlehttp.Middleware{Limits: func(_ *http.Request, t *queue.Ticket) error {
		t.Add(throttle.Demand{Limiter: places})
		t.Add(throttle.Demand{Limiter: limit})
		return nil
	}}
	api := httptest.NewServer(middleware.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer serving.enter()()
		if hangs.Load() {
			<-r.Context().Done()
		}
	})))
	defer api.Close()

	slots, quota, blows := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 4}), open("client"), new(tripBreaker)
	ours := &http.Client{Transport: &heed.Transport{
		Base: sending.RoundTripper(api.Client().Transport),
		Limits: func(_ *http.Request, t *queue.Ticket) error {
			t.Add(throttle.Demand{Limiter: slots})
			t.Add(throttle.Demand{Limiter: quota})
			return nil
		},
		Retry:   &heed.RetryPolicy{MaxAttempts: -1, AttemptTimeout: 200 * time.Millisecond},
		Breaker: func(*http.Request) heed.Breaker { return blows },
	}}
	strangers := &http.Client{Transport: api.Client().Transport, Timeout: 200 * time.Millisecond}

	var served atomic.Int64
	call := func(c *http.Client, n int) {
		inParallel(n, func() {
			if get(c, api.URL) == http.StatusOK {
				served.Add(1)
			}
		})
	}
	call(strangers, 10)
	require.NotZero(t, served.Swap(0))
	call(ours, 10)
	require.NotZero(t, served.Load())

	hangs.Store(true)
	before := sending.total.Load()
	call(strangers, 1)
	redistest.Await(t, "the server to notice that the strangers have left", func() bool {
		d, err := places.Reserve(t.Context(), throttle.Claim{Cost: allPlaces, DryRun: true})
		return err == nil && d.OK
	})
	call(ours, 10)
	require.LessOrEqual(t, serving.max.Load(), int64(allPlaces))
	require.LessOrEqual(t, sending.max.Load(), int64(4))
	// Those that waited when the breaker opened had its permission, which is asked for before the wait (issue 25).
	require.LessOrEqual(t, sending.total.Load()-before, int64(10+32))
}
