package heed

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/heed-go/heed/throttle"
)

// errCanceled is returned for a request that Request.Cancel or CancelRequest ended
// while it waited.
var errCanceled error = canceledError{}

type canceledError struct{}

func (canceledError) Error() string   { return "heed: request canceled" }
func (canceledError) Is(t error) bool { return t == context.Canceled }

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

// cancelCause returns why nobody waits for the response any more, nil if somebody does.
func (rt *roundTrip) cancelCause() error {
	if rt.ctx.Err() != nil {
		return context.Cause(rt.ctx)
	}
	if rt.t.cancellations.isCanceled(rt.req) || isClosed(cancelOf(rt.req)) {
		return errCanceled
	}
	return nil
}

// cancelOf returns Request.Cancel, which programs still set, and http.Client does for
// its Timeout.
func cancelOf(req *http.Request) <-chan struct{} {
	return req.Cancel //lint:ignore SA1019 see above
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// watchCancel calls stop when cancel is closed, unless ctx ends before.
func watchCancel(ctx context.Context, cancel <-chan struct{}, stop context.CancelCauseFunc) {
	if cancel == nil {
		return
	}
	go func() {
		select {
		case <-cancel:
			stop(errCanceled)
		case <-ctx.Done():
		}
	}()
}

// A waitContext is the context of one wait of a call. It ends with that of the
// request, and when the request is cancelled otherwise. Most waits are over before
// they block: so what tells of the end is made by the first Done.
type waitContext struct {
	context.Context // of the request

	mu        sync.Mutex
	roundTrip *roundTrip // nil: the wait is over
	derived   context.Context
	stop      context.CancelCauseFunc
}

// newWaitContext returns the context of a wait that begins. It must be ended. If shared is
// false, nobody keeps the context when the wait is over, and it is part of c.
func (rt *roundTrip) newWaitContext(shared bool) *waitContext {
	w := &rt.waitCtx
	if shared {
		w = new(waitContext)
	}
	w.Context, w.roundTrip, w.derived, w.stop = rt.ctx, rt, nil, nil
	return w
}

// end says that the wait is over.
func (w *waitContext) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	rt := w.roundTrip
	w.roundTrip = nil
	if w.stop != nil {
		w.stop(nil)
		rt.t.cancellations.update(rt.req, cancellation{})
	}
}

// Done implements context.Context.
func (w *waitContext) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.derived == nil {
		w.derived, w.stop = context.WithCancelCause(w.Context)
		if rt := w.roundTrip; rt == nil {
			w.stop(nil)
		} else {
			rt.t.cancellations.update(rt.req, cancellation{stop: w.stop})
			watchCancel(w.derived, cancelOf(rt.req), w.stop)
		}
	}
	return w.derived.Done()
}

// Err implements context.Context.
func (w *waitContext) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.derived != nil && w.derived.Err() != nil:
		return context.Cause(w.derived)
	case w.roundTrip == nil:
		return w.Context.Err()
	}
	return w.roundTrip.cancelCause()
}

// nonBlocking reports whether all limits of the ticket answer from memory, and so do not
// look at a context.
func (l *attemptResources) nonBlocking() bool {
	for i := range l.ticket.Demands {
		if x := l.ticket.Demands[i].Limiter; x != nil && !throttle.IsNonBlocking(x) {
			return false
		}
	}
	return true
}
