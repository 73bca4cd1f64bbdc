package heedtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Bounds of what a client under test can use up.
const (
	maxSends       = 1000     // requests in one trial, unless it sets meter.maxSends
	maxRead        = 16 << 20 // bytes of response bodies in one trial
	maxVirtualTime = 3 * time.Hour
	maxRealTime    = time.Minute // of a trial by the system clock, for clients that do not let virtual time advance
)

// trialStart is the virtual time at which a trial starts. Bubbles begin in 2000, when Unix
// times had nine digits and could be taken for delays. The fraction detects clients that
// round dates down.
var trialStart = time.Date(2026, time.January, 1, 0, 0, 0, 300_000_000, time.UTC)

// callHeader is the header that contains the number of the call to which a request belongs.
const callHeader = "Heedtest-Call"

var errPanicked = errors.New("heedtest: the client panicked")

// A trial is one client that makes calls to one server in a bubble of its own.
type trial struct {
	server *Server
	base   *meter
	client http.RoundTripper
	ctx    context.Context // ends with the trial

	mu     sync.Mutex
	calls  int
	fault  string         // how the client broke the trial; empty: it did not
	figure func() float64 // the figure of a trial that the client breaks; nil: none
}

// trial starts server, builds a client and calls run. If they cannot be ended, they are
// abandoned and the check fails.
//
// run must not use e, because it may be abandoned. It returns a function that records in e
// what the trial observed, which is called if the client did not break the trial.
func (e *evaluation) trial(name string, server *Server, run func(*trial) (record func())) {
	if e.fault != "" {
		return
	}
	type outcome struct {
		record func()
		figure float64 // if there is a fault
		fault  string
	}
	ended, over := make(chan outcome, 1), make(chan struct{})
	go func() {
		var out outcome
		defer close(over)
		defer func() {
			// A bubble in which goroutines are left panics. This does not matter here:
			// checkLeaks counts goroutines itself.
			if p := recover(); out.record == nil && out.fault == "" {
				out.fault = fmt.Sprintf("the trial did not end: %v", p)
			}
			ended <- out
		}()
		synctest.Test(e.t, func(*testing.T) {
			time.Sleep(time.Until(trialStart))
			tr := &trial{server: server}
			out.record, out.figure, out.fault = tr.execute(e.newClient, run)
		})
	}()
	timer := time.NewTimer(e.maxRealTime)
	defer timer.Stop()
	select {
	case out := <-ended:
		if out.fault != "" {
			e.figure = max(e.figure, out.figure)
			e.fail("%s: %s", name, out.fault)
		} else {
			out.record()
		}
	case <-timer.C:
		e.stuck = over
		e.fail("%s: the client blocked for %v without letting virtual time advance", name, e.maxRealTime)
	}
}

// execute runs a trial in the current bubble. It returns either record or a fault, with its
// figure.
func (tr *trial) execute(newClient clientFunc, run func(*trial) func()) (record func(), figure float64, fault string) {
	var cancel context.CancelFunc
	tr.ctx, cancel = context.WithCancel(context.Background())
	tr.server.StartInMemory()
	transport := tr.server.Transport()
	transport.MaxIdleConnsPerHost = 100
	tr.base = &meter{next: transport, over: make(chan struct{}), broken: tr.broken, maxSends: maxSends}
	finished := make(chan func(), 1)
	go func() {
		var record func()
		defer func() {
			if p := recover(); p != nil {
				tr.broken("the client panicked: %v", p)
			}
			finished <- record
		}()
		if tr.client = newClient(tr.base); tr.client == nil {
			tr.broken("newClient returned nil")
			return
		}
		record = run(tr)
	}()
	timer := time.NewTimer(maxVirtualTime)
	defer timer.Stop()
	select {
	case record = <-finished:
	case <-timer.C:
		tr.broken("a call had not ended after %v", maxVirtualTime)
	}
	cancel()
	tr.close()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if record == nil && tr.fault == "" {
		tr.fault = "the client ended the goroutine of its caller"
	}
	if tr.fault != "" && tr.figure != nil {
		figure = tr.figure()
	}
	return record, figure, tr.fault
}

// ifBroken sets the figure of the trial for the case that the client breaks it: a client that
// reads without end has read a number of bytes.
func (tr *trial) ifBroken(figure func() float64) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.figure = figure
}

// close ends all requests and the server.
func (tr *trial) close() {
	tr.base.close()
	tr.server.Close()
}

// broken records how the client broke the trial. Only the first report counts.
func (tr *trial) broken(format string, args ...any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.fault == "" {
		tr.fault = fmt.Sprintf(format, args...)
	}
}

// A reply is the outcome of a call.
type reply struct {
	status int    // 0 if there was no response
	body   string // its first MiB
	err    error  // of the call or of reading the body
	took   time.Duration
}

// succeeded reports whether the call ended with status 200 and a complete body.
func (r reply) succeeded() bool { return r.err == nil && r.status == http.StatusOK }

// get makes a GET with the deadline. Zero means none.
func (tr *trial) get(deadline time.Duration) reply {
	return tr.call(http.MethodGet, nil, deadline)
}

// call makes a call with the deadline. Zero means none. A nil body means none.
func (tr *trial) call(method string, body io.Reader, deadline time.Duration) reply {
	ctx := tr.ctx
	if deadline > 0 {
		limited, cancel := context.WithTimeout(ctx, deadline)
		defer cancel()
		ctx = limited
	}
	return tr.do(tr.request(ctx, method, body))
}

// request returns a request to the server. Every request is a call of its own.
func (tr *trial) request(ctx context.Context, method string, body io.Reader) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, tr.server.URL+"/path", body)
	if err != nil {
		panic(err) // methods and URLs are constants
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.calls++
	req.Header.Set(callHeader, strconv.Itoa(tr.calls))
	return req
}

// send makes a call through an http.Client, as programs do.
func (tr *trial) send(req *http.Request) (resp *http.Response, err error) {
	err = errPanicked
	defer func() {
		if p := recover(); p != nil {
			tr.broken("the client panicked: %v", p)
		}
	}()
	return (&http.Client{Transport: tr.client}).Do(req)
}

// do makes a call and reads the body.
func (tr *trial) do(req *http.Request) (r reply) {
	start := time.Now()
	r.err = errPanicked
	defer func() {
		r.took = time.Since(start)
		if p := recover(); p != nil {
			tr.broken("the body of the client panicked: %v", p)
		}
	}()
	resp, err := tr.send(req)
	if r.err = err; err != nil {
		return r
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	r.status, r.body, r.err = resp.StatusCode, string(body), err
	return r
}

// together makes n calls at the same moment and returns their outcomes.
func (tr *trial) together(n int, deadline time.Duration) []reply {
	replies := make([]reply, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { replies[i] = tr.get(deadline) })
	}
	all.Wait()
	return replies
}

// attempts returns the number of requests that arrived for each call.
func (tr *trial) attempts() map[string]int {
	n := map[string]int{}
	for _, r := range tr.server.Requests() {
		n[r.Header.Get(callHeader)]++
	}
	return n
}

// retries returns the number of requests beyond the first of each call.
func (tr *trial) retries() (n int) {
	for _, attempts := range tr.attempts() {
		n += attempts - 1
	}
	return n
}

// A meter is the RoundTripper beneath the client under test. It counts, and stops a client
// that sends or reads without end.
type meter struct {
	next   *http.Transport
	over   chan struct{} // closed at the end of the trial
	broken func(format string, args ...any)

	maxSends int
	onSend   func(*http.Request) // called before each request; nil: none

	mu   sync.Mutex
	sent int
	open int   // response bodies that have not been closed
	read int64 // bytes of response bodies
}

// RoundTrip implements http.RoundTripper.
func (m *meter) RoundTrip(r *http.Request) (*http.Response, error) {
	m.mu.Lock()
	m.sent++
	excess := m.sent > m.maxSends
	m.mu.Unlock()
	if excess {
		m.broken("the client sent more than %d requests", m.maxSends)
		m.endCaller()
	}
	if m.onSend != nil {
		m.onSend(r)
	}
	resp, err := m.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open++
	resp.Body = &meteredBody{ReadCloser: resp.Body, meter: m}
	return resp, nil
}

// CloseIdleConnections closes the idle connections of the transport.
func (m *meter) CloseIdleConnections() { m.next.CloseIdleConnections() }

func (m *meter) close() {
	close(m.over)
	m.next.CloseIdleConnections()
}

// endCaller blocks until the trial is over, and then ends the current goroutine, which would
// otherwise continue without end.
func (m *meter) endCaller() {
	<-m.over
	runtime.Goexit()
}

// counts returns the number of bodies that are open, and the bytes read of all bodies.
func (m *meter) counts() (open int, read int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.open, m.read
}

// A meteredBody is the body of a response.
type meteredBody struct {
	io.ReadCloser
	meter *meter
	once  sync.Once
}

// Read implements io.Reader.
func (b *meteredBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.meter.mu.Lock()
	b.meter.read += int64(n)
	excess := b.meter.read > maxRead
	b.meter.mu.Unlock()
	if excess {
		b.meter.broken("the client read more than %d MiB", maxRead>>20)
		b.meter.endCaller()
	}
	return n, err
}

// Close implements io.Closer.
func (b *meteredBody) Close() error {
	b.once.Do(func() {
		b.meter.mu.Lock()
		defer b.meter.mu.Unlock()
		b.meter.open--
	})
	return b.ReadCloser.Close()
}
