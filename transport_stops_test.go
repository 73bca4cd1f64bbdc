package heed_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
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
	return callOnce(t.Context(), c, s.server.URL+"/items", name)
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
			{2000, 100, 500, 30 * time.Second}, {20000, 50, 10000, 5 * time.Second},
		} {
			t.Run(fmt.Sprint(status, " ", tt), func(t *testing.T) {
				if testing.Short() && (tt.calls > 2000 || tt.workers > 20 || (status == http.StatusServiceUnavailable) == (tt.begin < 500)) {
					t.Skip("only make test-long runs it")
				}
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
		"leaky bucket": func() throttle.Limiter {
			return throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: limit, Queue: 1000})
		},
		"fixed window": func() throttle.Limiter {
			return throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 20, Per: time.Second})
		},
		"both": func() throttle.Limiter {
			return throttle.AllOf(throttle.NewTokenBucket(limit), throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 10}))
		},
	} {
		for _, before := range []int{0, 60, 150} {
			if testing.Short() && (before == 60 || before == 150 && name != "token bucket") {
				continue
			}
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

// It is the same with a limit that a function adds to the request, in other modes of the Tracker, and if hundreds are in
// flight when the stop begins.
func TestTransport_stopsInOtherSettings(t *testing.T) {
	limit := throttle.PerSecond(20).WithBurst(1)
	bucket := throttle.NewTokenBucket(limit)
	for name, tt := range map[string]struct {
		before, calls, begin int
		transport            func() *heed.Transport
	}{
		"Limits": {60, 200, 10, func() *heed.Transport {
			return &heed.Transport{Limits: func(_ *http.Request, k *queue.Ticket) error {
				k.Add(throttle.Demand{Limiter: bucket})
				return nil
			}}
		}},
		"StatedOnly": {60, 200, 10, func() *heed.Transport {
			return &heed.Transport{Limiter: throttle.NewTokenBucket(limit), Quota: &quota.Tracker{Mode: quota.StatedOnly}}
		}},
		"no slow start": {60, 200, 10, func() *heed.Transport {
			return &heed.Transport{Limiter: throttle.NewTokenBucket(limit), Quota: &quota.Tracker{}}
		}},
		"1000 wait":              {0, 1000, 10, func() *heed.Transport { return &heed.Transport{Limiter: throttle.NewTokenBucket(limit)} }},
		"1000 in flight":         {60, 1000, 500, func() *heed.Transport { return new(heed.Transport) }},
		"1000 in flight, stated": {60, 1000, 10, func() *heed.Transport { return &heed.Transport{Quota: &quota.Tracker{Mode: quota.StatedOnly}} }},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && strings.HasPrefix(name, "1000 in flight, ") {
				t.Skip("only make test-long runs it")
			}
			synctest.Test(t, func(t *testing.T) {
				s := newStop(t, tt.before+tt.begin, http.StatusTooManyRequests, 30*time.Second, 20*time.Millisecond)
				tr := tt.transport()
				tr.Base = s.server.Transport()
				c := heed.NewClient(tr)
				if tt.before > 0 {
					failed, _ := s.run(t, c, tt.before, 1)
					require.Zero(t, failed)
				}
				time.Sleep(5 * time.Second)
				failed, took := s.run(t, c, tt.calls, tt.calls)
				t.Logf("%d rejected, %d failed, %v", s.rejected, failed, took)
				require.Zero(t, s.early, "sent again before the time that their rejections stated")
				require.Zero(t, failed)
				atOnce := 40 // what confirms the hold, and tests
				if tr.Limiter == nil && tr.Limits == nil {
					atOnce += tt.calls
				}
				require.LessOrEqual(t, s.rejected, atOnce)
				require.Less(t, took, 40*time.Second+time.Duration(tt.calls)*time.Second/20)
				tr.CloseIdleConnections()
			})
		})
	}
}

// Workers whose calls have deadlines share an own limit, and the server rejects everything for six seconds, with a
// Retry-After of seven. Few requests are sent meanwhile. Afterwards no call fails, and all of the limit is used.
func TestTransport_usesItsOwnLimitAfterAStop(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		for _, deadline := range []time.Duration{4 * time.Second, 30 * time.Second} {
			for _, faulty := range []int{0, 20} { // each n-th response is a 500
				if testing.Short() && (faulty == 0 || deadline > 4*time.Second || status == http.StatusTooManyRequests) {
					continue
				}
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					s := &heedtest.Server{Key: func(r *http.Request) string { return r.Header.Get(callHeader) }, Respond: func(r heedtest.Request) heedtest.Response {
						d := time.Since(start)
						switch {
						case d > 8*time.Second && d < 14*time.Second:
							return heedtest.Response{Status: status, Delay: time.Millisecond, Header: http.Header{"Retry-After": {"7"}}}
						case faulty > 0 && r.N%faulty == 0:
							return heedtest.Response{Status: http.StatusInternalServerError, Delay: time.Millisecond}
						}
						return heedtest.Response{Delay: time.Millisecond}
					}}
					s.StartInMemory()
					defer s.Close()
					tr := &heed.Transport{Base: s.Transport(), Limiter: throttle.NewTokenBucket(throttle.PerSecond(20))}
					c := heed.NewClient(tr)
					var mu sync.Mutex
					var failed, served [12]int // by the time at which the calls end, in 10 s
					var workers sync.WaitGroup
					for i := range 12 {
						workers.Go(func() {
							for n := 0; time.Since(start) < 118*time.Second; n++ {
								ctx, cancel := context.WithTimeout(t.Context(), deadline)
								ok := callOnce(ctx, c, s.URL, fmt.Sprint(i, " ", n))
								cancel()
								mu.Lock()
								if in := &failed[min(time.Since(start)/(10*time.Second), 11)]; !ok {
									*in++
								} else {
									served[min(time.Since(start)/(10*time.Second), 11)]++
								}
								mu.Unlock()
								if !ok {
									time.Sleep(50 * time.Millisecond)
								}
							}
						})
					}
					workers.Wait()
					name := fmt.Sprint(status, " ", deadline, " ", faulty)
					require.Empty(t, s.EarlyRetries(), name)
					sent := 0
					for _, r := range s.Requests() {
						if d := r.At.Sub(start); d > 8*time.Second && d < 14*time.Second {
							sent++
						}
					}
					require.LessOrEqual(t, sent, 20, "%s: of 120 that the own limit permits", name)
					for i := range 9 { // from 20 s on
						require.Zero(t, failed[2+i], "%s: %v", name, failed)
						require.GreaterOrEqual(t, served[2+i], 180, "%s: %v", name, served)
					}
					tr.CloseIdleConnections()
				})
			}
		}
	}
}

// callOnce makes a call that is named, and reports whether it succeeded.
func callOnce(ctx context.Context, c *http.Client, url, name string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	req.Header.Set(callHeader, name)
	resp, err := c.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// A program that is started again and again during a long Retry-After, and knows nothing of its earlier runs, sends one
// request each time: its deadline is earlier than the stated time.
func TestTransport_aShortProgramSendsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStop(t, 1, http.StatusTooManyRequests, 30*time.Second, 0)
		const runs = 10
		for i := range runs {
			tr := &heed.Transport{Base: s.server.Transport()}
			c := heed.NewClient(tr)
			c.Timeout = 2 * time.Second
			start := time.Now()
			require.False(t, s.call(t, c, fmt.Sprint(i)))
			require.Zero(t, time.Since(start), "it does not wait for what would end too late")
			time.Sleep(2 * time.Second)
			tr.CloseIdleConnections()
		}
		require.Equal(t, runs, s.rejected)
	})
}
