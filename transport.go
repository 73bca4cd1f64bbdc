package heed

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A Transport is an http.RoundTripper that keeps the limits of the servers it
// talks to, and those that it is given. The zero Transport is a good citizen: it
// learns each server's limits from its answers and sends again what is safe to
// send again. Add a Limiter to throttle yourself.
//
// Its methods may be called by many goroutines at once. Fields must not change
// after the first request, and a Transport must not be copied after it. Share one
// Transport, or one Quota and Queue between several, among all that call the same
// servers.
//
// If a limiter returns an error, mostly because the store that it asks is down, RoundTrip
// returns that error and sends nothing: a limit that cannot be checked is never exceeded.
// A throttle.Fallback around the limiter decides otherwise: with throttle.AllowAll as its
// Secondary requests are sent without limit, with a local limiter within that one.
type Transport struct {
	Base    http.RoundTripper                  // sends; nil: http.DefaultTransport
	Limiter throttle.Limiter                   // a limit of our own for all requests; nil: none
	Limits  func(*http.Request, *queue.Ticket) // adds demands and a priority per request; nil: none
	Quota   *quota.Tracker                     // the servers' limits; nil: one of the Transport's own
	Queue   *queue.Queue                       // nil: one of the Transport's own; share it wherever limits are shared
	Retry   *RetryPolicy                       // nil: the zero RetryPolicy

	// RetryFor returns the policy of a request, for example by its host or route. Nil,
	// or if it returns nil: Retry. A policy without a Budget shares that of Retry. It
	// must not modify the request, nor wait.
	RetryFor func(*http.Request) *RetryPolicy

	Breaker func(*http.Request) Breaker // the breaker of a server; nil, or returns nil: none
	Trace   *Trace                      // nil: none
	Clock   throttle.Clock              // nil: the system clock; deadlines of contexts are always on that

	// StartJitter is for programs that all start at the same time, as at noon: the first
	// request, and those that come meanwhile, wait for a part of it that differs from
	// program to program. StartSeed is the part: drawn at random if it is 0, or derived
	// with backoff.OffsetFor from what tells the programs apart. 0: nobody waits.
	StartJitter time.Duration
	StartSeed   backoff.Offset

	once           sync.Once
	resolved       resolved
	unlimitedCalls atomic.Uint64 // that no limit concerned
	startDelay     startDelay

	cancellations cancelRegistry
}

// resolved is what a Transport makes for itself where a field is nil.
type resolved struct {
	base       http.RoundTripper
	quota      *quota.Tracker
	events     *quota.Events // what the Tracker calls; nil: Trace asks for none
	queue      *queue.Queue
	trace      *Trace
	retry      RetryPolicy
	openBodies openBodies
}

// NewClient returns a client that sends through t; nil is a zero Transport of its
// own. The client follows redirects as any http.Client; each hop is a request of
// its own to t.
//
// The client's Timeout, if it gets one, is for a call with all its hops, attempts and
// pauses, and with the time in line: it says how long the caller can wait. How long
// one attempt may take is RetryPolicy.AttemptTimeout.
func NewClient(t *Transport) *http.Client {
	if t == nil {
		t = new(Transport)
	}
	return &http.Client{Transport: t}
}

// RoundTrip implements http.RoundTripper: it stands in line, sends, tells the
// limits what came back, and sends again what may be sent again.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.resolve()
	if err := validateRequest(req, t.resolved.base); err != nil {
		closeBody(req.Body)
		return nil, err
	}
	rt := t.newRoundTrip(req)
	defer rt.end()
	resp, err := rt.run()
	rt.returned = true
	return resp, err
}

// run sends the attempts of rt until one is final.
func (rt *roundTrip) run() (*http.Response, error) {
	rt.resolvePolicy()
	if err := rt.addDemands(); err != nil {
		return rt.reject(err)
	}
	if t := rt.t; t.StartJitter > 0 && !t.startDelay.passed.Load() {
		if err := rt.waitForStart(); err != nil {
			return rt.fail(err)
		}
	}
	for {
		attempt, err := rt.nextAttempt()
		if err != nil {
			return rt.fail(err)
		}
		resp, err := rt.send(attempt)
		if !rt.shouldRetry(resp, err) {
			return rt.finish()
		}
		if err := rt.waitForRetry(); err != nil {
			return rt.fail(err)
		}
	}
}

// CloseIdleConnections closes those of Base, for http.Client.CloseIdleConnections.
func (t *Transport) CloseIdleConnections() {
	t.resolve()
	if b, ok := t.resolved.base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

// CancelRequest ends the RoundTrip of req, which is the request that it was given: in
// the queue, between two attempts, and in flight if Base has CancelRequest, as
// http.Transport has, or if RetryPolicy.AttemptTimeout is set. It is not retried.
//
// Use a context instead. CancelRequest is there for programs that were written for
// http.Transport, and for http.Client.
func (t *Transport) CancelRequest(req *http.Request) {
	t.resolve()
	sent := t.cancellations.cancel(req)
	if b, ok := t.resolved.base.(interface{ CancelRequest(*http.Request) }); ok {
		b.CancelRequest(sent)
	}
}

// resolve makes what t has to have of its own.
func (t *Transport) resolve() {
	t.once.Do(func() {
		t.resolved = resolved{base: t.Base, quota: t.Quota, queue: t.Queue, trace: t.Trace, retry: t.Retry.withDefaults(nil)}
		if t.resolved.base == nil {
			t.resolved.base = http.DefaultTransport
		}
		if t.resolved.quota == nil {
			t.resolved.quota = &quota.Tracker{Clock: t.Clock}
		}
		if t.resolved.trace == nil {
			t.resolved.trace = new(Trace)
		}
		if t.resolved.queue == nil {
			t.resolved.queue = &queue.Queue{Clock: t.Clock}
		}
		t.resolved.quota.Notify(t.resolved.queue)
		if tr := t.resolved.trace; tr.Hold != nil || tr.LimitLearned != nil {
			t.resolved.events = &quota.Events{Hold: tr.Hold, LimitLearned: tr.LimitLearned}
			t.resolved.quota.Listen(t.resolved.events)
		}
	})
}

func (t *Transport) now() time.Time {
	if t.Clock == nil {
		return time.Now()
	}
	return t.Clock.Now()
}

// A Breaker stops requests to a server that is down. The two-step breaker of
// github.com/sony/gobreaker/v2 is one as it is.
type Breaker interface {
	// Allow returns an error if nothing may be sent now, and else a function to
	// call with what came of it: nil if the server works.
	Allow() (done func(error), err error)
}

// A startDelay is when a Transport with a StartJitter begins to send.
type startDelay struct {
	once   sync.Once
	at     time.Time
	passed atomic.Bool // at has passed
}

// cancelRegistry knows which requests CancelRequest has named, and of the calls that wait or have
// a copy of their request in flight how to end that. Calls that do neither are not in it,
// so that most requests pay no more than one atomic reading.
type cancelRegistry struct {
	hasCanceled atomic.Bool // there are canceled requests
	mu          sync.Mutex
	canceled    map[*http.Request]bool
	active      map[*http.Request]cancellation
}

// A cancellation is what can end a call from outside, beside its context.
type cancellation struct {
	sent *http.Request           // the attempt in flight, if it is a copy; nil: there is none
	stop context.CancelCauseFunc // ends the wait, or the attempt; nil: there is none
}

// maxCanceled bounds the requests that were named and have no call, as after its end.
const maxCanceled = 1024

// update records how the call of req can be ended from now on. The zero cancellation
// says that it cannot.
func (r *cancelRegistry) update(req *http.Request, c cancellation) {
	r.mu.Lock()
	if c.sent == nil && c.stop == nil {
		delete(r.active, req)
	} else {
		if r.active == nil {
			r.active = make(map[*http.Request]cancellation)
		}
		r.active[req] = c
	}
	canceled := r.canceled[req]
	r.mu.Unlock()
	if c.stop != nil && canceled {
		c.stop(errCanceled)
	}
}

// cancel ends the call of req and returns the request that it may have in flight.
func (r *cancelRegistry) cancel(req *http.Request) (sent *http.Request) {
	r.mu.Lock()
	if r.canceled == nil || len(r.canceled) >= maxCanceled {
		r.canceled = make(map[*http.Request]bool)
	}
	r.canceled[req] = true
	r.hasCanceled.Store(true)
	c := r.active[req]
	r.mu.Unlock()
	if c.stop != nil {
		c.stop(errCanceled)
	}
	if c.sent != nil {
		return c.sent
	}
	return req
}

// isCanceled reports whether CancelRequest has named req.
func (r *cancelRegistry) isCanceled(req *http.Request) bool {
	if !r.hasCanceled.Load() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.canceled[req]
}

// end forgets that req was named, as its call begins or returns.
func (r *cancelRegistry) end(req *http.Request) {
	if !r.hasCanceled.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.canceled, req)
	r.hasCanceled.Store(len(r.canceled) > 0)
}
