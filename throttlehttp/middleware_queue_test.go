package throttlehttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// onePerSecond returns a limit of one request per second without a burst.
func onePerSecond() throttle.Limiter {
	return throttle.NewTokenBucket(throttle.PerSecond(1))
}

// A requestGroup sends requests through a handler, each on a goroutine of its own, and records
// the time and the content of the responses in the order in which they arrive.
type requestGroup struct {
	handler   http.Handler
	start     time.Time
	all       sync.WaitGroup
	mu        sync.Mutex
	responses []string
}

func (c *requestGroup) send(ctx context.Context, name string) {
	c.all.Go(func() {
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		r.Header.Set("User", name)
		c.handler.ServeHTTP(w, r)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.responses = append(c.responses, fmt.Sprint(name, " ", w.Code, " at ", time.Since(c.start)))
	})
	synctest.Wait() // later requests are later in the queue
}

func (c *requestGroup) wait() []string {
	c.all.Wait()
	return c.responses
}

func newRequestGroup(m *throttlehttp.Middleware, next http.Handler) *requestGroup {
	return &requestGroup{handler: m.Handler(next), start: time.Now()}
}

func TestQueue_isInTheOrderOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRequestGroup(&throttlehttp.Middleware{Limiter: onePerSecond(), Queue: &queue.Queue{MaxPerClass: 3}}, ok)
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			c.send(t.Context(), name)
		}
		require.Equal(t, []string{"a 200 at 0s", "e 429 at 0s", "b 200 at 1s", "c 200 at 2s", "d 200 at 3s"}, c.wait())
	})
}

func TestQueue_delayIsNotLongerThanMaxWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &throttlehttp.Middleware{
			Rules: []throttlehttp.Rule{{Limiter: keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerMinute(1)}), Key: senderKey}},
			Queue: &queue.Queue{MaxWait: 5 * time.Second},
		}
		c := newRequestGroup(m, ok)
		c.send(t.Context(), "ann")
		c.send(t.Context(), "ann") // would have to wait for a minute
		c.send(t.Context(), "bob") // has a queue of its own
		time.Sleep(57 * time.Second)
		c.send(t.Context(), "ann")
		c.send(t.Context(), "ann") // would not have to wait too long, but another request is ahead of it
		require.ElementsMatch(t, []string{"ann 200 at 0s", "ann 429 at 0s", "bob 200 at 0s", "ann 429 at 57s", "ann 200 at 1m0s"}, c.wait())
		time.Sleep(30 * time.Second)
		r := send(c.handler, "ann")
		require.Equal(t, "429 1/0/30 30", limitSummary(r), "who is rejected learns when")
	})
}

func TestQueue_bounds(t *testing.T) {
	for name, w := range map[string]*queue.Queue{"one line": {MaxPerClass: 2}, "all lines": {MaxTotal: 2}} {
		synctest.Test(t, func(t *testing.T) {
			var c *requestGroup
			var policies []string
			m := &throttlehttp.Middleware{Limiter: onePerSecond(), Queue: w, Trace: &throttlehttp.Trace{
				Decided: func(_ *http.Request, d throttle.Decision) {
					c.mu.Lock()
					defer c.mu.Unlock()
					policies = append(policies, d.Policy)
				},
			}}
			c = newRequestGroup(m, ok)
			for range 3 {
				c.send(t.Context(), "x")
			}
			r := send(c.handler, "y")
			require.Equal(t, "429 // 1", limitSummary(r), "%s: then there is a place", name)
			body, _ := io.ReadAll(r.Body)
			require.Contains(t, string(body), throttlehttp.ReducedCapacity, name)
			time.Sleep(time.Second)
			synctest.Wait()
			c.send(t.Context(), "y")
			require.Equal(t, []string{"x 200 at 0s", "x 200 at 1s", "x 200 at 2s", "y 200 at 3s"}, c.wait(), name)
			require.Equal(t, []string{"1 per 1s", "queue full", "1 per 1s", "1 per 1s", "1 per 1s"}, policies, name)
		})
	}
}

func TestQueue_canceledRequestLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var failed []error
		m := &throttlehttp.Middleware{Limiter: onePerSecond(), Queue: new(queue.Queue), Trace: &throttlehttp.Trace{
			Failed: func(_ *http.Request, err error, open bool) {
				failed = append(failed, err)
				assert.False(t, open)
			},
		}}
		c := newRequestGroup(m, ok)
		ctx, leave := context.WithCancel(t.Context())
		c.send(t.Context(), "a")
		c.send(ctx, "b")
		c.send(t.Context(), "c")
		leave()
		require.Equal(t, []string{"a 200 at 0s", "b 503 at 0s", "c 200 at 1s"}, c.wait())
		require.Equal(t, []error{context.Canceled}, failed)
	})
}

// TestQueue_concurrency checks that a slot is free when the handler returns or panics, and
// that a waiting request gets it at the same instant.
func TestQueue_concurrency(t *testing.T) {
	for name, end := range map[string]func(){"returns": func() {}, "panics": func() { panic(http.ErrAbortHandler) }} {
		synctest.Test(t, func(t *testing.T) {
			m := &throttlehttp.Middleware{Limiter: throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 2}), Queue: new(queue.Queue)}
			busy, most := 0, 0
			c := newRequestGroup(m, nil)
			c.handler = recoverPanics(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				c.mu.Lock()
				busy++
				most = max(most, busy)
				c.mu.Unlock()
				time.Sleep(time.Second)
				c.mu.Lock()
				busy--
				c.mu.Unlock()
				end()
			})))
			for range 6 {
				c.send(t.Context(), "x")
			}
			c.all.Wait()
			require.Equal(t, 2, most, name)
			require.Equal(t, 3*time.Second, time.Since(c.start), name)
		})
	}
}

// recoverPanics recovers from panics as a server does.
func recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { _ = recover() }()
		next.ServeHTTP(w, r)
	})
}

// TestQueue_returnedUnitsGoToWaiters checks that units that Settle returns go to waiting
// requests.
func TestQueue_returnedUnitsGoToWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &throttlehttp.Middleware{
			Rules: []throttlehttp.Rule{{Limiter: perHour(1), Key: senderKey, FinalCost: throttlehttp.OnStatus(http.StatusUnauthorized)}},
			Queue: &queue.Queue{MaxWait: 2 * time.Hour},
		}
		c := newRequestGroup(m, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(time.Second)
			io.WriteString(w, "hello")
		}))
		for range 3 {
			c.send(t.Context(), "ann")
		}
		require.Equal(t, []string{"ann 200 at 1s", "ann 200 at 2s", "ann 200 at 3s"}, c.wait())
	})
}

func TestQueue_higherPriorityGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &throttlehttp.Middleware{Limiter: onePerSecond(), Queue: new(queue.Queue), Limits: func(r *http.Request, t *queue.Ticket) error {
			if r.Header.Get("User") == "urgent" {
				t.Priority = 1
			}
			return nil
		}}
		c := newRequestGroup(m, ok)
		for _, name := range []string{"a", "b", "urgent"} {
			c.send(t.Context(), name)
		}
		require.Equal(t, []string{"a 200 at 0s", "urgent 200 at 1s", "b 200 at 2s"}, c.wait())
	})
}

// TestQueue_failures checks that a closed Queue serves no requests, and that FailClosed
// decides if a limiter fails, with and without waiting requests.
func TestQueue_failures(t *testing.T) {
	down := errors.New("store is down")
	closed := new(queue.Queue)
	require.NoError(t, closed.Close())
	for name, tt := range map[string]struct {
		m    throttlehttp.Middleware
		want int
	}{
		"closed": {throttlehttp.Middleware{Limiter: throttle.DenyAll, Queue: closed}, 503},
		"open":   {throttlehttp.Middleware{Limiter: fixedDecision{err: down}, Queue: new(queue.Queue)}, 200},
		"shut":   {throttlehttp.Middleware{Limiter: fixedDecision{err: down}, Queue: new(queue.Queue), FailClosed: true}, 503},
		"never":  {throttlehttp.Middleware{Limiter: throttle.DenyAll, Queue: new(queue.Queue)}, 429},
		"cost":   {throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: onePerSecond(), Cost: func(*http.Request) int64 { return -1 }}}, Queue: new(queue.Queue)}, 503},
	} {
		require.Equal(t, tt.want, serveGet(tt.m.Handler(ok)).StatusCode, name)
	}
}
