package throttleredis_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttleredis"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// A leasedClient is a process that calls an API within a leased limit.
type leasedClient struct {
	*http.Client
	tracker *quota.Tracker
}

// newLeasedClient returns a client with its own connection to Redis.
func newLeasedClient(t *testing.T, addr string, limit throttle.Limit) *leasedClient {
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { c.Close() })
	store := &throttleredis.Store{Client: c, Mode: throttleredis.Leased}
	t.Cleanup(func() { require.NoError(t, store.Close(context.Background())) })
	tracker := &quota.Tracker{NeverTest: true, Exchange: &throttleredis.Exchange{Client: c, Secret: []byte("secret")}}
	t.Cleanup(func() { tracker.Close() })
	return &leasedClient{heed.NewClient(&heed.Transport{Limiter: store.TokenBucket(limit), Quota: tracker}), tracker}
}

// Two processes with several callers and deadlines send within the limit. Each call ends with a response,
// or with an error of its wait.
func TestLeased_underTransports(t *testing.T) {
	server := redistest.Start(t)
	limit := throttle.Limit{Name: "api", Count: 200, Per: time.Second, Burst: 100}
	var mu sync.Mutex
	var received []time.Time
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		received = append(received, time.Now())
	}))
	t.Cleanup(api.Close)
	var ok, late atomic.Int64
	var wg sync.WaitGroup
	for range 2 {
		c := newLeasedClient(t, server.Addr, limit)
		for i := range 16 {
			wg.Go(func() {
				for range 10 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%4*400+100)*time.Millisecond)
					req, _ := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, nil)
					resp, err := c.Do(req)
					switch {
					case err == nil:
						ok.Add(1)
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, heed.ErrMaxWait):
						late.Add(1)
					default:
						t.Error(err)
					}
					cancel()
				}
			})
		}
	}
	wg.Wait()
	require.Equal(t, int64(320), ok.Load()+late.Load())
	took := received[len(received)-1].Sub(received[0])
	require.LessOrEqual(t, float64(len(received)), 100+200*(took+100*time.Millisecond).Seconds(), "within %v; the last 100 ms are for the way to the server", took)
	require.Greater(t, ok.Load(), int64(100))
}

// What a server states to one process holds those that have units leased.
func TestLeased_aHoldReachesAllHolders(t *testing.T) {
	server := redistest.Start(t)
	var exhausted atomic.Bool
	var requests atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		if exhausted.Load() {
			w.Header().Set("RateLimit-Policy", `"default";q=1000;w=60`)
			w.Header().Set("RateLimit", `"default";r=0;t=30`)
		}
	}))
	t.Cleanup(api.Close)
	limit := throttle.PerSecond(10_000)
	one, other := newLeasedClient(t, server.Addr, limit), newLeasedClient(t, server.Addr, limit)
	get := func(c *leasedClient) error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, api.URL, nil)
		resp, err := c.Do(req)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	for range 50 {
		require.NoError(t, get(other), "it leases units")
	}
	require.NoError(t, get(one))
	exhausted.Store(true)
	require.NoError(t, get(one))
	redistest.Await(t, "the other process to hear of the hold", func() bool {
		for _, a := range other.tracker.Snapshot(0).Shown {
			for _, q := range a.Quotas {
				if q.Hold != nil || len(q.Limits) > 0 {
					return true
				}
			}
		}
		return false
	})
	before := requests.Load()
	require.Error(t, get(other))
	require.Equal(t, before, requests.Load())
}
