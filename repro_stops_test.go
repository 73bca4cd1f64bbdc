package heed_test

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/throttle"
)

// A stop is a time for which a healthy server rejects all requests, with the right Retry-After.
type stop struct {
	server *heedtest.Server
	length time.Duration

	mu       sync.Mutex
	begin    int // number of the request that begins it
	until    time.Time
	rejected int                  // requests
	allowed  map[string]time.Time // when each rejected call may be repeated
	early    int                  // requests of rejected calls before that
}

// callHeader names the call of a request, so that the server knows which requests are repeated.
const callHeader = "X-Call"

func newStop(t *testing.T, begin, status int, length, latency time.Duration) *stop {
	s := &stop{length: length, begin: begin, allowed: map[string]time.Time{}}
	s.server = &heedtest.Server{Key: func(r *http.Request) string { return r.Header.Get(callHeader) }, Respond: func(r heedtest.Request) heedtest.Response {
		s.mu.Lock()
		defer s.mu.Unlock()
		now, call := time.Now(), r.Header.Get(callHeader)
		if r.N == s.begin {
			s.until = now.Add(length)
		}
		if now.Before(s.allowed[call]) {
			s.early++
		}
		left := s.until.Sub(now)
		if left <= 0 {
			return heedtest.Response{Delay: latency}
		}
		s.rejected++
		seconds := int((left + time.Second - 1) / time.Second)
		s.allowed[call] = now.Add(time.Duration(seconds) * time.Second)
		return heedtest.Response{Status: status, Delay: latency, Header: http.Header{"Retry-After": {strconv.Itoa(seconds)}}}
	}}
	s.server.StartInMemory()
	t.Cleanup(s.server.Close)
	return s
}

// call makes a call that is named, and reports whether it succeeded.
func (s *stop) call(t *testing.T, c *http.Client, name string) bool {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.server.URL+"/items", nil)
	if err != nil {
		t.Error(err)
		return false
	}
	req.Header.Set(callHeader, name)
	resp, err := c.Do(req)
	if err != nil {
		t.Log(err)
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// run makes n calls of c with a number of workers. It returns how many failed, and how long they took.
func (s *stop) run(t *testing.T, c *http.Client, n, workers int) (failed int, took time.Duration) {
	start, calls := time.Now(), make(chan int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range workers {
		wg.Go(func() {
			for i := range calls {
				if !s.call(t, c, fmt.Sprint(n, " calls, ", i)) {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	for i := range n {
		calls <- i
	}
	close(calls)
	wg.Wait()
	return failed, time.Since(start)
}

// A healthy server without a limit rejects everything once, for some seconds, with the right Retry-After. No call
// fails, no call is repeated before the time that its own rejection stated, few others are sent meanwhile, and the
// time is little more than that of the stop and the calls.
func TestTransport_stopsOfAHealthyServer(t *testing.T) {
	const latency = 20 * time.Millisecond
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		for _, tt := range []struct {
			calls, workers, begin int
			length                time.Duration
		}{
			{2000, 20, 5, 5 * time.Second}, {2000, 20, 50, 30 * time.Second}, {2000, 20, 500, 5 * time.Second},
			{2000, 20, 500, time.Minute}, {4000, 10, 2000, 5 * time.Second}, {4000, 50, 2000, 2 * time.Second}, {4000, 50, 2000, 30 * time.Second},
		} {
			t.Run(fmt.Sprint(status, " ", tt), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStop(t, tt.begin, status, tt.length, latency)
					tr := &heed.Transport{Base: s.server.Transport()}
					failed, took := s.run(t, heed.NewClient(tr), tt.calls, tt.workers)
					ideal := tt.length + time.Duration(tt.calls/tt.workers)*latency
					t.Logf("%d rejected, %d failed, %v of %v", s.rejected, failed, took, ideal)
					require.Zero(t, failed)
					require.Zero(t, s.early, "sent again before the time that their rejections stated")
					require.LessOrEqual(t, s.rejected, 2*tt.workers+int(tt.length/time.Second), "what was in flight, what confirms the hold, and tests")
					require.Less(t, took, ideal*11/10+time.Second)
					tr.CloseIdleConnections()
				})
			})
		}
	}
}

// Callers that wait for an own limit are not sent while the server rejects requests, after any number of good
// responses, and none is repeated early.
func TestTransport_stopsWhileCallersWaitForAnOwnLimit(t *testing.T) {
	limit := throttle.PerSecond(20).WithBurst(1)
	for name, own := range map[string]func() throttle.Limiter{
		"none":         func() throttle.Limiter { return nil },
		"token bucket": func() throttle.Limiter { return throttle.NewTokenBucket(limit) },
		"burst":        func() throttle.Limiter { return throttle.NewTokenBucket(throttle.PerSecond(20)) },
		"sliding log": func() throttle.Limiter {
			return throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.PerSecond(20)})
		},
		"concurrency": func() throttle.Limiter { return throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 5}) },
		"both": func() throttle.Limiter {
			return throttle.AllOf(throttle.NewTokenBucket(limit), throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 10}))
		},
	} {
		for _, before := range []int{0, 60, 150} {
			t.Run(fmt.Sprint(name, ", ", before), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStop(t, before+10, http.StatusTooManyRequests, 30*time.Second, 20*time.Millisecond)
					tr := &heed.Transport{Base: s.server.Transport(), Limiter: own()}
					c := heed.NewClient(tr)
					if before > 0 {
						failed, _ := s.run(t, c, before, 1)
						require.Zero(t, failed)
					}
					time.Sleep(5 * time.Second)
					failed, took := s.run(t, c, 200, 200)
					t.Logf("%d rejected, %d failed, %v", s.rejected, failed, took)
					require.Zero(t, s.early, "sent again before the time that their rejections stated")
					if name != "none" && name != "burst" { // the burst of 200 is in flight when the stop begins
						require.LessOrEqual(t, s.rejected, 40, "what confirms the hold, which may be sent together, and tests")
					}
					require.Zero(t, failed)
					require.Less(t, took, 50*time.Second, "30 s, and 200 calls at 20 a second")
					tr.CloseIdleConnections()
				})
			})
		}
	}
}
