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
var errCanceled error = canceled{}

type canceled struct{}

func (canceled) Error() string   { return "heed: request canceled" }
func (canceled) Is(t error) bool { return t == context.Canceled }

// CancelRequest ends the RoundTrip of req, which is the request that it was given: in
// the queue, between two attempts, and in flight if Base has CancelRequest, as
// http.Transport has, or if Retry.PerAttempt is set. It is not retried.
//
// Use a context instead. CancelRequest is there for programs that were written for
// http.Transport, and for http.Client.
func (t *Transport) CancelRequest(req *http.Request) {
	t.ready()
	sent := t.running.cancel(req)
	if b, ok := t.own.base.(interface{ CancelRequest(*http.Request) }); ok {
		b.CancelRequest(sent)
	}
}

// calling knows which requests CancelRequest has named, and of the calls that wait or have
// a copy of their request in flight how to end that. Calls that do neither are not in it,
// so that most requests pay no more than one atomic reading.
type calling struct {
	any      atomic.Bool // there are canceled requests
	mu       sync.Mutex
	canceled map[*http.Request]bool
	calls    map[*http.Request]cancellation
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
func (r *calling) update(req *http.Request, c cancellation) {
	r.mu.Lock()
	if c.sent == nil && c.stop == nil {
		delete(r.calls, req)
	} else {
		if r.calls == nil {
			r.calls = make(map[*http.Request]cancellation)
		}
		r.calls[req] = c
	}
	canceled := r.canceled[req]
	r.mu.Unlock()
	if c.stop != nil && canceled {
		c.stop(errCanceled)
	}
}

// cancel ends the call of req and returns the request that it may have in flight.
func (r *calling) cancel(req *http.Request) (sent *http.Request) {
	r.mu.Lock()
	if r.canceled == nil || len(r.canceled) >= maxCanceled {
		r.canceled = make(map[*http.Request]bool)
	}
	r.canceled[req] = true
	r.any.Store(true)
	c := r.calls[req]
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
func (r *calling) isCanceled(req *http.Request) bool {
	if !r.any.Load() {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.canceled[req]
}

// end forgets that req was named, as its call begins or returns.
func (r *calling) end(req *http.Request) {
	if !r.any.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.canceled, req)
	r.any.Store(len(r.canceled) > 0)
}

// gone returns why nobody waits for the response any more, nil if somebody does.
func (c *call) gone() error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	if c.t.running.isCanceled(c.req) || isClosed(cancelOf(c.req)) {
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

// endOn calls stop when cancel is closed, unless ctx ends before.
func endOn(ctx context.Context, cancel <-chan struct{}, stop context.CancelCauseFunc) {
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

	mu   sync.Mutex
	call *call // nil: the wait is over
	own  context.Context
	stop context.CancelCauseFunc
}

// waiting returns the context of a wait that begins. It must be ended. If shared is
// false, nobody keeps the context when the wait is over, and it is part of c.
func (c *call) waiting(shared bool) *waitContext {
	w := &c.wait
	if shared {
		w = new(waitContext)
	}
	w.Context, w.call, w.own, w.stop = c.ctx, c, nil, nil
	return w
}

// end says that the wait is over.
func (w *waitContext) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.call
	w.call = nil
	if w.stop != nil {
		w.stop(nil)
		c.t.running.update(c.req, cancellation{})
	}
}

// Done implements context.Context.
func (w *waitContext) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.own == nil {
		w.own, w.stop = context.WithCancelCause(w.Context)
		if c := w.call; c == nil {
			w.stop(nil)
		} else {
			c.t.running.update(c.req, cancellation{stop: w.stop})
			endOn(w.own, cancelOf(c.req), w.stop)
		}
	}
	return w.own.Done()
}

// Err implements context.Context.
func (w *waitContext) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.own != nil && w.own.Err() != nil:
		return context.Cause(w.own)
	case w.call == nil:
		return w.Context.Err()
	}
	return w.call.gone()
}

// local reports whether all limits of the ticket answer from memory, and so do not
// look at a context.
func (l *lease) local() bool {
	for i := range l.ticket.Demands {
		if x := l.ticket.Demands[i].Limiter; x != nil {
			if m, ok := x.(throttle.Local); !ok || !m.Local() {
				return false
			}
		}
	}
	return true
}
