package heed_test

import (
	"context"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
)

// A limitedServer responds to one request that arrives now; status 0 closes the
// connection.
type limitedServer func(now time.Time) (status int, h http.Header)

// An estimateRun is what came of a job.
type estimateRun struct {
	wasted, failed int
	elapsed        time.Duration
}

// runJob sends n calls from c goroutines to s, rtt away, through transport.
func runJob(t *testing.T, client *http.Client, n, c int) (failed int, elapsed time.Duration) {
	calls := make(chan int, n)
	for i := range n {
		calls <- i
	}
	close(calls)
	var wg sync.WaitGroup
	var mu sync.Mutex
	start := time.Now()
	for range c {
		wg.Go(func() {
			for range calls {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api.test/items", nil)
				if err != nil {
					panic(err)
				}
				resp, err := client.Do(req)
				ok := err == nil && resp.StatusCode == http.StatusOK
				if err == nil {
					resp.Body.Close()
				}
				if !ok {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed, time.Since(start)
}

// farServer is a server that is rtt away, as an http.RoundTripper.
type farServer struct {
	serve  limitedServer
	rtt    time.Duration
	mu     sync.Mutex
	wasted int
}

func (s *farServer) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(s.rtt / 2)
	s.mu.Lock()
	status, h := s.serve(time.Now())
	if status != http.StatusOK {
		s.wasted++
	}
	s.mu.Unlock()
	time.Sleep(s.rtt - s.rtt/2)
	if status == 0 {
		return nil, io.EOF
	}
	if h == nil {
		h = http.Header{}
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader("")), Request: req, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}, nil
}

func bucketServer(rate float64, burst int64, status int, retryAfter bool) limitedServer {
	l := throttle.NewTokenBucket(throttle.Limit{Count: int64(rate), Per: time.Second, Burst: burst}, nil)
	return func(now time.Time) (int, http.Header) {
		d, _ := l.Reserve(context.Background(), throttle.Claim{Now: now})
		if d.OK {
			return 200, nil
		}
		h := http.Header{}
		if retryAfter {
			h.Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Wait.Seconds()))))
		}
		return status, h
	}
}

func windowServer(limit int, per time.Duration, status int, retryAfter bool) limitedServer {
	var start time.Time
	used := 0
	return func(now time.Time) (int, http.Header) {
		if now.Sub(start) >= per {
			start, used = now, 0
		}
		used++
		if used <= limit {
			return 200, nil
		}
		h := http.Header{}
		if retryAfter {
			h.Set("Retry-After", strconv.Itoa(int(math.Ceil(start.Add(per).Sub(now).Seconds()))))
		}
		return status, h
	}
}

func haproxyServer(limit int, per time.Duration, status int, retryAfter string) limitedServer {
	var start time.Time
	cur, prev := 0, 0
	return func(now time.Time) (int, http.Header) {
		if start.IsZero() {
			start = now
		}
		if p := now.Sub(start); p >= 2*per {
			cur, prev, start = 0, 0, now
		} else if p >= per {
			cur, prev, start = 0, cur, start.Add(per)
		}
		cur++
		if cur+int(float64(prev)*float64(per-now.Sub(start))/float64(per)) <= limit {
			return 200, nil
		}
		h := http.Header{}
		if retryAfter != "" {
			h.Set("Retry-After", retryAfter)
		}
		return status, h
	}
}

func TestTransport_estimates(t *testing.T) {
	for _, tt := range []struct {
		name  string
		make  func() limitedServer
		n     int
		ideal time.Duration
	}{
		{"nginx 20/s burst 20 bare 429", func() limitedServer { return bucketServer(20, 21, 429, false) }, 300, 13950 * time.Millisecond},
		{"same, bare 503", func() limitedServer { return bucketServer(20, 21, 503, false) }, 300, 13950 * time.Millisecond},
		{"same, drop", func() limitedServer { return bucketServer(20, 21, 0, false) }, 300, 13950 * time.Millisecond},
		{"same, bare 403", func() limitedServer { return bucketServer(20, 21, 403, false) }, 300, 13950 * time.Millisecond},
		{"same, RA", func() limitedServer { return bucketServer(20, 21, 429, true) }, 300, 13950 * time.Millisecond},
		{"20/s no burst bare 429", func() limitedServer { return bucketServer(20, 1, 429, false) }, 300, 14950 * time.Millisecond},
		{"20/s no burst RA", func() limitedServer { return bucketServer(20, 1, 429, true) }, 300, 14950 * time.Millisecond},
		{"haproxy 50/2s bare 429", func() limitedServer { return haproxyServer(50, 2*time.Second, 429, "") }, 300, 12 * time.Second},
		{"haproxy RA 2", func() limitedServer { return haproxyServer(50, 2*time.Second, 429, "2") }, 300, 12 * time.Second},
		{"haproxy bare 503", func() limitedServer { return haproxyServer(50, 2*time.Second, 503, "") }, 300, 12 * time.Second},
		{"5 per s bare 429", func() limitedServer { return windowServer(5, time.Second, 429, false) }, 300, 59 * time.Second},
		{"5 per s RA", func() limitedServer { return windowServer(5, time.Second, 429, true) }, 300, 59 * time.Second},
		{"1 per s bare 429", func() limitedServer { return windowServer(1, time.Second, 429, false) }, 100, 99 * time.Second},
		{"1 per s bare 503", func() limitedServer { return windowServer(1, time.Second, 503, false) }, 100, 99 * time.Second},
		{"100 per 5 s bare 429", func() limitedServer { return windowServer(100, 5*time.Second, 429, false) }, 300, 10 * time.Second},
		{"10/s burst 10", func() limitedServer { return bucketServer(10, 10, 429, false) }, 300, 29 * time.Second},
	} {
		for _, rtt := range []time.Duration{time.Millisecond, 50 * time.Millisecond} {
			var runs [2][]estimateRun
			for range 5 {
				synctest.Test(t, func(t *testing.T) {
					s := &farServer{serve: tt.make(), rtt: rtt}
					client := heed.NewClient(&heed.Transport{Base: s})
					for job := range 2 {
						s.wasted = 0
						failed, elapsed := runJob(t, client, tt.n, 30)
						runs[job] = append(runs[job], estimateRun{s.wasted, failed, elapsed})
						time.Sleep(8 * time.Second)
					}
				})
			}
			line := tt.name + " " + rtt.String() + ": "
			for job := range 2 {
				var w, f, mw, mf int
				var x, mx float64
				for _, r := range runs[job] {
					w, f, x = w+r.wasted, f+r.failed, x+float64(r.elapsed)/float64(tt.ideal)
					mw, mf, mx = max(mw, r.wasted), max(mf, r.failed), max(mx, float64(r.elapsed)/float64(tt.ideal))
				}
				line += strconv.Itoa(w/5) + "(" + strconv.Itoa(mw) + ") " + strconv.FormatFloat(x/5, 'f', 2, 64) + "(" + strconv.FormatFloat(mx, 'f', 2, 64) + ")"
				if f > 0 {
					line += " FAILED " + strconv.Itoa(f/5) + "(" + strconv.Itoa(mf) + ")"
				}
				line += " | "
			}
			t.Log(line)
		}
	}
}
