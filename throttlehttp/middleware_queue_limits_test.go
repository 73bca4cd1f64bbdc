package throttlehttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// countWaiting sends n requests of different clients, each of which must wait, and returns how
// many of them wait.
func countWaiting(t *testing.T, m *throttlehttp.Middleware, n int) (waits int) {
	perClient := keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(1)})
	m.Rules = []throttlehttp.Rule{{Limiter: perClient, Key: throttlehttp.Header("User")}}
	h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	ctx, leave := context.WithCancel(t.Context())
	codes := map[int]int{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range 2 * n {
		all.Go(func() {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
			r.Header.Set("User", strconv.Itoa(i%n))
			h.ServeHTTP(w, r)
			mu.Lock()
			defer mu.Unlock()
			codes[w.Code]++
		})
	}
	synctest.Wait()
	mu.Lock()
	waits = 2*n - codes[http.StatusOK] - codes[http.StatusTooManyRequests]
	require.Equal(t, n, codes[http.StatusOK], "a client that need not wait is served however many wait")
	mu.Unlock()
	leave()
	all.Wait()
	return waits
}

// TestQueue_isBoundedByDefault checks that a Queue without MaxTotal delays 1,024 requests
// of a Middleware, and that MaxTotal changes that number.
func TestQueue_isBoundedByDefault(t *testing.T) {
	for name, tt := range map[string]struct {
		m     throttlehttp.Middleware
		waits int
	}{
		"default":  {throttlehttp.Middleware{Queue: &queue.Queue{MaxWait: -1}}, 1024},
		"MaxTotal": {throttlehttp.Middleware{Queue: &queue.Queue{MaxWait: -1, MaxTotal: 1050}}, 1050},
		"no bound": {throttlehttp.Middleware{Queue: &queue.Queue{MaxWait: -1, MaxTotal: -1}}, 1100},
		"MaxWait":  {throttlehttp.Middleware{Queue: new(queue.Queue)}, 0}, // an hour is longer than its default
	} {
		synctest.Test(t, func(t *testing.T) {
			require.Equal(t, tt.waits, countWaiting(t, &tt.m, 1100), name)
		})
	}
}

// TestQueue_boundCountsWaitingRequests checks that a place in the queue is free again when
// its request has left the queue.
func TestQueue_boundCountsWaitingRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &queue.Queue{MaxWait: -1}
		rounds := 3
		if testing.Short() {
			rounds = 2
		}
		for range rounds {
			require.Equal(t, 1024, countWaiting(t, &throttlehttp.Middleware{Queue: w}, 1100))
			time.Sleep(time.Hour)
		}
	})
}
