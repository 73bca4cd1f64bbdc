package heedtest

import (
	"context"
	"io"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/scorecard"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
)

// checkEndlessBody checks that the client does not read bodies that the caller does not read.
//
// Harm: An endless body fills its memory, and streams are delayed. A small body may be read, so
// that its connection can be used again.
// Source: net/http.Response.Body, which leaves reading to the caller.
func checkEndlessBody(e *evaluation) {
	for _, code := range []int{200, 500, 503} {
		name := strconv.Itoa(code)
		a := Response{Status: code, Fault: Endless, Body: strings.Repeat("x", 64<<10)}
		e.trial(name, &Server{Respond: always(a)}, func(tr *trial) func() {
			read := func() float64 {
				_, n := tr.base.counts()
				return float64(n) / 1024
			}
			tr.ifBroken(read)
			tr.readAndClose(4 << 10)
			figure := read()
			return func() {
				e.measured(figure, "%s: the client read %.0f KiB of a response of which the caller read 4", name, figure)
			}
		})
	}
}

// checkStalledBody checks that the client does not wait for the end of a body that the caller
// does not read.
//
// Harm: A server that stops in the middle of a response, or sends it a byte at a time, stops
// calls that have no deadline.
// Source: net/http.Response.Body, which leaves reading to the caller.
func checkStalledBody(e *evaluation) {
	for name, a := range inOrder(map[string]Response{
		"200 that stops":  {Fault: HangBody},
		"429 that stops":  {Status: 429, Fault: HangBody},
		"503 that stops":  {Status: 503, Fault: HangBody},
		"503 byte a time": {Status: 503, Body: strings.Repeat("x", 64<<10), ByteInterval: time.Second},
	}) {
		e.trial(name, &Server{Respond: always(a)}, func(tr *trial) func() {
			start := time.Now()
			took := func() float64 { return time.Since(start).Seconds() }
			tr.ifBroken(took)
			tr.readAndClose(0)
			figure := took()
			return func() {
				e.measured(figure, "%s: the call took %s s, waiting for a body that the caller did not need", name, scorecard.Number(figure))
			}
		})
	}
}

// readAndClose makes a GET without a deadline, reads n bytes of the response and closes it.
func (tr *trial) readAndClose(n int64) {
	resp, err := tr.send(tr.request(tr.ctx, http.MethodGet, nil))
	if err == nil {
		_, _ = io.CopyN(io.Discard, resp.Body, n)
		_ = resp.Body.Close()
	}
}

// checkUploadBuffer checks that an upload is not read into memory before it is sent.
//
// Harm: Otherwise the client needs as much memory as its largest uploads.
// Source: issues hashicorp/go-retryablehttp #145, #244.
func checkUploadBuffer(e *evaluation) {
	const size = 8 << 20
	e.trial("upload", &Server{}, func(tr *trial) func() {
		tr.base.maxSends = 50 // each keeps a MiB of its body
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

// checkHealthyServer checks that no more calls fail than without a client when a healthy
// server fails one request in a hundred.
//
// Harm: A client that takes single failures for a limit stops calls that would have succeeded.
// Source: DESIGN, principle 1 ("do no harm"); bench/healthy.
func checkHealthyServer(e *evaluation) {
	const calls, every = 1000, 100
	for name, fault := range inOrder(map[string]Response{"503": status(503), "500": status(500), "429": status(429), "closed connection": {Fault: Drop}}) {
		var n atomic.Int64
		server := &Server{Respond: func(Request) Response {
			if n.Add(1)%every == every/2 {
				return fault
			}
			return Response{Delay: 10 * time.Millisecond}
		}}
		e.trial(name, server, func(tr *trial) func() {
			tr.base.maxSends = 10 * calls
			var all sync.WaitGroup
			var failed atomic.Int64
			for range calls {
				time.Sleep(40 * time.Millisecond)
				all.Go(func() {
					if !tr.get(5 * time.Second).succeeded() {
						failed.Add(1)
					}
				})
			}
			all.Wait()
			percent := 100 * float64(failed.Load()) / calls
			return func() {
				e.measured(percent, "%s: %s %% of calls failed at a server that fails 1 %% of requests", name, scorecard.Number(percent))
			}
		})
	}
}

// checkDialects checks that the client obeys limits that responses state in the header fields
// in use.
//
// Harm: A client that does not read them is rejected, and some servers ban. A client that
// misreads them is rejected too, or waits for no reason. A few requests that test whether the
// statements are right do no harm.
// Source: draft-ietf-httpapi-ratelimit-headers-03 and -10; the X-RateLimit fields of GitHub
// and Okta; retry-after-ms of OpenAI.
func checkDialects(e *evaluation) {
	const calls, workers, rate = 30, 5, 10 // a window of 10 s admits 10
	const maxTests = 12                    // a client that does not read what remains has 16 or more rejections, or 10 with a Retry-After
	for name, tt := range inOrder(map[string]struct {
		dialect headers.Dialect
		edit    func(http.Header)
	}{
		"X-RateLimit-Reset, delay":     {dialect: headers.XRateLimit},
		"X-RateLimit-Reset, Unix time": {dialect: headers.XRateLimit, edit: EpochReset},
		"RateLimit-Remaining":          {dialect: headers.Draft03},
		"RateLimit":                    {dialect: headers.Draft10},
	}) {
		server := &Server{EditHeader: tt.edit}
		e.trial(name, server, func(tr *trial) func() {
			server.Limit = &throttlehttp.Middleware{
				Limiter: throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: rate, Per: 10 * time.Second, Align: throttle.AtCreation}),
				Dialect: tt.dialect,
			}
			start := time.Now()
			var all sync.WaitGroup
			for range workers {
				all.Go(func() {
					for range calls / workers {
						tr.get(0)
					}
				})
			}
			all.Wait()
			rejected, took := tr.rejected(), time.Since(start)
			return func() {
				figure := float64(rejected)
				if rejected <= maxTests {
					figure = 0
				}
				e.measured(figure, "%s: %d requests of %d calls were rejected although each response stated what remains", name, rejected, calls)
				if took > 2*time.Minute {
					e.fail("%s: %d calls took %v at a server that admits %d in 10 s", name, calls, took, rate)
				}
			}
		})
	}
	e.rejections()
}

// rejections makes a call to a server that rejects all requests of 30 s and states the end
// without Retry-After. All requests after the first count as rejected too early.
func (e *evaluation) rejections() {
	const wait = 30 * time.Second
	for name, fields := range inOrder(map[string]func(left time.Duration, end time.Time) []string{
		"RateLimit": func(left time.Duration, _ time.Time) []string {
			return []string{"RateLimit", `"default";r=0;t=` + seconds(left)}
		},
		"RateLimit-Reset": func(left time.Duration, _ time.Time) []string {
			return []string{"RateLimit-Limit", "10", "RateLimit-Remaining", "0", "RateLimit-Reset", seconds(left)}
		},
		"X-RateLimit-Reset, Unix time": func(_ time.Duration, end time.Time) []string {
			return []string{"X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.FormatInt(end.Add(time.Second-1).Unix(), 10)}
		},
		"Retry-After-Ms": func(left time.Duration, _ time.Time) []string {
			return []string{"Retry-After-Ms", strconv.FormatInt(left.Milliseconds()+1, 10)}
		},
	}) {
		server := &Server{Respond: untilElapsed(wait, func(left time.Duration, end time.Time) Response {
			return status(429, fields(left, end)...)
		})}
		e.trial("429 with "+name, server, func(tr *trial) func() {
			tr.get(0)
			early := tr.rejected() - 1
			return func() {
				e.measured(float64(early), "429 with %s: %d retries came before the stated time", name, early)
			}
		})
	}
}

// rejected returns the number of requests with status 429.
func (tr *trial) rejected() (n int) {
	for _, r := range tr.server.Requests() {
		if r.Status == http.StatusTooManyRequests {
			n++
		}
	}
	return n
}

// seconds returns d in seconds, rounded up.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// checkLostUnits checks that calls that are given up return their units of limits and their
// places in queues.
//
// Harm: Otherwise later calls wait for calls that no longer exist.
// Source: issues golang/go #56924, mvanhorn/cli-printing-press #4441.
func checkLostUnits(e *evaluation) {
	const callers = 20
	e.trial("callers that give up while the server asks to wait", &Server{Respond: untilElapsed(3*time.Second, func(left time.Duration, _ time.Time) Response {
		return status(429, "Retry-After", seconds(left))
	})}, func(tr *trial) func() {
		tr.together(callers, time.Second)
		time.Sleep(4 * time.Second)
		return tr.slowest(e, callers, "after %d callers gave up, the slowest of as many new calls took %v")
	})
	slow := Response{Delay: 100 * time.Millisecond}
	e.trial("callers that give up during the response", &Server{Respond: always(slow)}, func(tr *trial) func() {
		for range 3 {
			tr.together(callers, 0)
		}
		for range 3 {
			tr.together(callers, 50*time.Millisecond)
		}
		return tr.slowest(e, callers, "after 3 x %d callers gave up during the response, the slowest of as many new calls took %v")
	})
	large := Response{Body: strings.Repeat("x", 64<<10)} // more than a connection buffers
	e.trial("bodies that are closed early", &Server{Respond: always(large)}, func(tr *trial) func() {
		var all sync.WaitGroup
		for range 5 * callers {
			all.Go(tr.closeEarly)
		}
		all.Wait()
		return tr.slowest(e, callers, "after the bodies of 5 x %d responses were closed early, the slowest of as many new calls took %v")
	})
}

// closeEarly makes a call and closes the body of the response without reading it.
func (tr *trial) closeEarly() {
	ctx, cancel := context.WithTimeout(tr.ctx, time.Minute)
	defer cancel()
	if resp, err := tr.send(tr.request(ctx, http.MethodGet, nil)); err == nil {
		_ = resp.Body.Close()
	}
}

// slowest makes n calls at the same moment. The figure is the time of the slowest.
func (tr *trial) slowest(e *evaluation, n int, format string) func() {
	var took time.Duration
	failed := 0
	for _, r := range tr.together(n, 0) {
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
func untilElapsed(d time.Duration, reject func(left time.Duration, end time.Time) Response) func(Request) Response {
	var mu sync.Mutex
	var end time.Time
	return func(r Request) Response {
		mu.Lock()
		defer mu.Unlock()
		if end.IsZero() {
			end = r.At.Add(d)
		}
		if left := end.Sub(r.At); left > 0 {
			return reject(left, end)
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

// inOrder iterates over m in the order of the keys, so that results do not depend on chance.
func inOrder[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			if !yield(key, m[key]) {
				return
			}
		}
	}
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
