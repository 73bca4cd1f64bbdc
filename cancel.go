package heed

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"unsafe"

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
	if b, ok := t.own.base.(interface{ CancelRequest(*http.Request) }); ok && sent != nil {
		b.CancelRequest(sent)
	}
}

// A cancellation is what can end a call from outside, beside its context. The mutex
// of its callingPart guards stop.
type cancellation struct {
	canceled atomic.Bool                  // by CancelRequest
	sent     atomic.Pointer[http.Request] // the attempt in flight; nil: there is none
	stop     context.CancelCauseFunc      // ends the wait, or the attempt; nil: there is none
}

// calling is the calls of a Transport that have not returned, by their requests. It has
// several parts, so that calls on many processors do not wait for one lock.
type calling [32]callingPart

type callingPart struct {
	mu    sync.Mutex
	calls map[*http.Request]*cancellation
	_     [48]byte // a cache line of its own
}

// part returns the part that req is in.
func (r *calling) part(req *http.Request) *callingPart {
	at := uintptr(unsafe.Pointer(req)) >> 5 // heap objects do not move
	return &r[(at^at>>5)%uintptr(len(r))]
}

func (r *calling) add(req *http.Request, c *cancellation) { r.part(req).add(req, c) }

func (r *callingPart) add(req *http.Request, c *cancellation) {
	r.mu.Lock()
	if r.calls == nil {
		r.calls = make(map[*http.Request]*cancellation)
	}
	r.calls[req] = c
	r.mu.Unlock()
}

func (r *calling) remove(req *http.Request, c *cancellation) { r.part(req).remove(req, c) }

func (r *callingPart) remove(req *http.Request, c *cancellation) {
	r.mu.Lock()
	if r.calls[req] == c { // a request that is sent twice at a time is the later call's
		delete(r.calls, req)
	}
	r.mu.Unlock()
}

// update records what ends the wait or the attempt of c from now on.
func (r *calling) update(req *http.Request, c *cancellation, stop context.CancelCauseFunc) {
	r.part(req).update(c, stop)
}

func (r *callingPart) update(c *cancellation, stop context.CancelCauseFunc) {
	r.mu.Lock()
	c.stop = stop
	r.mu.Unlock()
	if stop != nil && c.canceled.Load() {
		stop(errCanceled)
	}
}

// cancel ends the call of req and returns the request that it has in flight.
func (r *calling) cancel(req *http.Request) (sent *http.Request) {
	return r.part(req).cancel(req)
}

func (r *callingPart) cancel(req *http.Request) (sent *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.calls[req]
	if c == nil {
		return nil
	}
	c.canceled.Store(true)
	if c.stop != nil {
		c.stop(errCanceled)
	}
	return c.sent.Load()
}

// gone returns why nobody waits for the response any more, nil if somebody does.
func (c *call) gone() error {
	if c.ctx.Err() != nil {
		return context.Cause(c.ctx)
	}
	if c.outside.canceled.Load() || isClosed(cancelOf(c.req)) {
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
		c.t.running.update(c.req, &c.outside, nil)
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
			c.t.running.update(c.req, &c.outside, w.stop)
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
