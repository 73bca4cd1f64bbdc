package heedtest

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
)

// checkEndlessBody: a client that reads bodies to their end for itself can be filled or
// stopped by any server, and delays streams. Peers' issue pyqwest PR #217.
func checkEndlessBody(e *exam) {
	block := strings.Repeat("x", 64<<10)
	for name, a := range map[string]Response{
		"200":             {Fault: Endless, Body: block},
		"503":             {Status: 503, Fault: Endless, Body: block},
		"500":             {Status: 500, Fault: Endless, Body: block},
		"503 that stops":  {Status: 503, Fault: HangBody},
		"429 that stops":  {Status: 429, Fault: HangBody},
		"503 byte a time": {Status: 503, Body: block, ByteInterval: time.Second},
	} {
		e.trial(name, &Server{Respond: always(a)}, func(tr *trial) func() {
			start := time.Now()
			resp, err := (&http.Client{Transport: tr.client}).Do(tr.request(tr.ctx, http.MethodGet, nil))
			took := time.Since(start)
			if err == nil {
				if a.Fault == Endless {
					_, _ = io.ReadFull(resp.Body, make([]byte, 4<<10))
				}
				_ = resp.Body.Close()
			}
			_, read := tr.base.counts()
			return func() {
				e.measured(float64(read)/1024, "%s: the client read %d KiB of a response of which the caller read 4", name, read>>10)
				if took > 10*time.Minute {
					e.fail("%s: the call took %v, waiting for a body that the caller did not need", name, took)
				}
			}
		})
	}
}

// checkUploadBuffer: a client that reads a body into memory before it sends it needs as much
// memory as the largest upload. Peers' issues go-retryablehttp #145, #244.
func checkUploadBuffer(e *exam) {
	const size = 8 << 20
	e.trial("upload", &Server{}, func(tr *trial) func() {
		body := &countedReader{src: io.LimitReader(zeros{}, size)}
		var before atomic.Int64
		before.Store(-1)
		tr.base.onSend = func(*http.Request) { before.CompareAndSwap(-1, body.n.Load()) }
		tr.call(http.MethodPut, body, 0)
		n := before.Load()
		return func() {
			e.measured(float64(n)/1024, "%d KiB of an upload of %d KiB were read before it was sent", n>>10, size>>10)
		}
	})
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// A countedReader counts the bytes that are read.
type countedReader struct {
	src io.Reader
	n   atomic.Int64
}

// Read implements io.Reader.
func (c *countedReader) Read(p []byte) (int, error) {
	n, err := c.src.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// checkHealthyServer: a client that takes single failures for a limit stops calls that would
// have succeeded. The limit is what a client without retries loses. Issue 11; docs/estimates.md.
func checkHealthyServer(e *exam) {
	const calls, every = 2000, 100
	for name, fault := range map[string]Response{"503": status(503), "500": status(500), "429": status(429), "closed connection": {Fault: Drop}} {
		var n atomic.Int64
		server := &Server{Respond: func(Request) Response {
			if n.Add(1)%every == every/2 {
				return fault
			}
			return Response{Delay: 10 * time.Millisecond}
		}}
		e.trial(name, server, func(tr *trial) func() {
			var all sync.WaitGroup
			var failed atomic.Int64
			for range calls {
				time.Sleep(20 * time.Millisecond)
				all.Go(func() {
					if !tr.get(5 * time.Second).succeeded() {
						failed.Add(1)
					}
				})
			}
			all.Wait()
			percent := 100 * float64(failed.Load()) / calls
			return func() {
				e.measured(percent, "%s: %s %% of calls failed at a server that fails 1 %% of requests", name, number(percent))
			}
		})
	}
}

// checkDialects: a client that reads what remains of a limit does not have to be rejected to
// learn it. Each rejection costs the server a request, and some servers ban. RateLimit header
// fields for HTTP, draft-ietf-httpapi-ratelimit-headers, sections 3 to 5; GitHub's and Okta's
// X-RateLimit headers.
func checkDialects(e *exam) {
	for name, tt := range map[string]struct {
		dialect headers.Dialect
		edit    func(http.Header)
	}{
		"X-RateLimit, delay":     {dialect: headers.XRateLimit},
		"X-RateLimit, Unix time": {dialect: headers.XRateLimit, edit: EpochReset},
		"RateLimit-Remaining":    {dialect: headers.Draft03},
		"RateLimit":              {dialect: headers.Draft10},
	} {
		const calls, workers = 30, 5
		server := &Server{EditHeader: tt.edit}
		e.trial(name, server, func(tr *trial) func() {
			server.Limit = &throttlehttp.Middleware{
				Limiter: throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 10, Per: 10 * time.Second, Align: throttle.AtCreation}),
				Dialect: tt.dialect,
			}
			var all sync.WaitGroup
			for range workers {
				all.Go(func() {
					for range calls / workers {
						tr.get(0)
					}
				})
			}
			all.Wait()
			rejected := 0
			for _, r := range tr.server.Requests() {
				if r.Status == http.StatusTooManyRequests {
					rejected++
				}
			}
			return func() {
				e.measured(float64(rejected), "%s: %d requests of %d calls were rejected although each response stated what remains", name, rejected, calls)
			}
		})
	}
}

// checkLostUnits: a caller that gives up must return its place in queues and its units of
// limits. Otherwise later calls wait for calls that no longer exist. Peers' issues golang/go
// #56924, cli-printing-press PR #4441.
func checkLostUnits(e *exam) {
	const callers = 20
	e.trial("callers that give up while the server asks to wait", &Server{Respond: untilElapsed(3*time.Second, func(left time.Duration) Response {
		return status(429, "Retry-After", strconv.Itoa(int((left+time.Second-1)/time.Second)))
	})}, func(tr *trial) func() {
		tr.crowd(callers, time.Second)
		time.Sleep(4 * time.Second)
		return tr.slowest(e, callers, "after %d callers gave up, the slowest of as many new calls took %v")
	})
	slow := Response{Delay: 100 * time.Millisecond}
	e.trial("callers that give up during the response", &Server{Respond: always(slow)}, func(tr *trial) func() {
		for range 3 {
			tr.crowd(callers, 0)
		}
		for range 3 {
			tr.crowd(callers, 50*time.Millisecond)
		}
		return tr.slowest(e, callers, "after 3 x %d callers gave up during the response, the slowest of as many new calls took %v")
	})
	e.trial("bodies that are closed early", &Server{Respond: always(Response{Fault: Endless, ByteInterval: time.Second})}, func(tr *trial) func() {
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(tr.ctx, time.Minute)
				defer cancel()
				if resp, err := (&http.Client{Transport: tr.client}).Do(tr.request(ctx, http.MethodGet, nil)); err == nil {
					_ = resp.Body.Close()
				}
			})
		}
		all.Wait()
		ctx, cancel := context.WithTimeout(tr.ctx, time.Hour)
		defer cancel()
		start := time.Now()
		resp, err := (&http.Client{Transport: tr.client}).Do(tr.request(ctx, http.MethodGet, nil))
		took := time.Since(start)
		if err == nil {
			_ = resp.Body.Close()
		}
		return func() {
			e.measured(took.Seconds(), "after %d bodies were closed early, the next response took %v", callers, took)
		}
	})
}

// slowest makes n calls at the same moment. The figure is the time of the slowest.
func (tr *trial) slowest(e *exam, n int, format string) func() {
	var took time.Duration
	failed := 0
	for _, r := range tr.crowd(n, 0) {
		took = max(took, r.took)
		if !r.succeeded() {
			failed++
		}
	}
	return func() {
		e.measured(took.Seconds(), format, n, took)
		if failed > 0 {
			e.fail("%d of %d calls to a healthy server failed after earlier ones were given up", failed, n)
		}
	}
}

// untilElapsed returns a Respond function that responds with reject until d after the first
// request, and then with the zero Response.
func untilElapsed(d time.Duration, reject func(left time.Duration) Response) func(Request) Response {
	var mu sync.Mutex
	var end time.Time
	return func(r Request) Response {
		mu.Lock()
		defer mu.Unlock()
		if end.IsZero() {
			end = r.At.Add(d)
		}
		if left := end.Sub(r.At); left > 0 {
			return reject(left)
		}
		return Response{}
	}
}

// A window admits n requests in each period that begins with a request.
type window struct {
	mu     sync.Mutex
	n      int
	period time.Duration
	start  time.Time
	used   int
}

func newWindow(n int, period time.Duration) *window { return &window{n: n, period: period} }

func (w *window) take(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.start) >= w.period {
		w.start, w.used = now, 0
	}
	w.used++
	return w.used <= w.n
}

// A set of strings that can be used by several goroutines.
type set struct {
	mu sync.Mutex
	m  map[string]bool
}

func newSet() *set { return &set{m: map[string]bool{}} }

// add adds s and reports whether it is new.
func (x *set) add(s string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	known := x.m[s]
	x.m[s] = true
	return !known
}
