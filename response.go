package heed

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// An attemptResources is what a call holds that can last as long as the body of its response:
// the context of the attempt, and the claims of limits that hold until the end. It is
// taken from a pool. The call owns it until RoundTrip returns a response with such a
// body; from then on the body does.
type attemptResources struct {
	t                   *Transport
	ctx                 context.Context // of the request
	detachedCtx         context.Context // ctx without its end; nil: not needed yet
	ticket              queue.Ticket
	hasConfiguredLimits bool                    // there are limits other than the Tracker's
	granted             bool                    // the ticket is granted, and the grant has not ended
	sentToBase          bool                    // Base was given the attempt that the ticket is granted for
	outcome             throttle.Outcome        // of that attempt
	cancel              context.CancelCauseFunc // ends the context of the attempt; nil: it is the request's own
}

var attemptResourcesPool = sync.Pool{New: func() any { return new(attemptResources) }}

// detached returns the context for what ends a claim: it does not end, since what was
// claimed has to be given back also when the caller is gone. The Tracker's limits do
// not look at it.
func (l *attemptResources) detached() context.Context {
	if !l.hasConfiguredLimits || l.ctx.Done() == nil {
		return l.ctx
	}
	if l.detachedCtx == nil {
		l.detachedCtx = context.WithoutCancel(l.ctx)
	}
	return l.detachedCtx
}

// holdsUntilEnd reports whether a limit waits for the end of the body.
func (l *attemptResources) holdsUntilEnd() bool {
	if !l.hasConfiguredLimits {
		return false
	}
	for i := range l.ticket.Demands {
		if throttle.HoldsUntilEnd(l.ticket.Demands[i].Limiter) {
			return true
		}
	}
	return false
}

// release ends the context of the attempt and the claim.
func (l *attemptResources) release() {
	if l.cancel != nil {
		l.cancel(nil)
		l.cancel = nil
	}
	if l.granted {
		l.granted = false
		l.t.resolved.queue.Observe(l.detached(), &l.ticket, throttle.Feedback{Now: l.t.now(), Outcome: l.outcome})
	}
}

// hasOpenBody reports whether resp has a body with an end to wait for, or is a connection.
func hasOpenBody(resp *http.Response) bool {
	return resp != nil && resp.Body != nil && resp.Body != http.NoBody
}

// observeBodyEnd returns the body of resp so that l is released at its end: when the caller has
// read or closed it, or within abandonedAfter of the end of the context. The body of
// 101 is a connection, which outlives the context and ends when it is closed.
func (l *attemptResources) observeBodyEnd(resp *http.Response) io.ReadCloser {
	b := &bodyEOFSignal{ReadCloser: resp.Body, resources: l}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return b.upgraded()
	}
	if l.granted && l.ctx.Done() != nil { // the context of the attempt ends by itself
		b.ctx = l.ctx
		l.t.resolved.openBodies.add(b)
	}
	return b
}

// A bodyEOFSignal is the body of a response that releases a lease at its end.
type bodyEOFSignal struct {
	io.ReadCloser
	resources *attemptResources // belongs to the goroutine that sets ended
	ctx       context.Context   // whose end is the end of the body, too; nil: of none
	index     int32             // in openBodies, counted from 1; guarded by its mu; 0: not listed
	ended     atomic.Bool
}

// Read implements io.Reader.
func (b *bodyEOFSignal) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

// Close implements io.Closer.
func (b *bodyEOFSignal) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// end releases the lease, once, and returns it to the pool. The caller calls it after a
// Read that failed or a Close, and openBodies when the context has ended.
func (b *bodyEOFSignal) end() {
	if !b.ended.CompareAndSwap(false, true) {
		return
	}
	l := b.resources
	if b.ctx != nil {
		l.t.resolved.openBodies.remove(b)
	}
	l.release()
	*l = attemptResources{}
	attemptResourcesPool.Put(l)
}

// An upgradedConn is the body of 101, which can be written to. A Read that fails does
// not end it: the other direction may still be open.
type upgradedConn struct{ *bodyEOFSignal }

func (c upgradedConn) Read(p []byte) (int, error)  { return c.ReadCloser.Read(p) }
func (c upgradedConn) Write(p []byte) (int, error) { return c.ReadCloser.(io.Writer).Write(p) }

// A halfCloseConn is a connection that can close the direction to the server alone, as
// that of http.Transport can.
type halfCloseConn struct{ upgradedConn }

type closeWriter interface{ CloseWrite() error }

func (c halfCloseConn) CloseWrite() error { return c.ReadCloser.(closeWriter).CloseWrite() }

// upgraded returns b with the methods that the body of 101 has.
func (b *bodyEOFSignal) upgraded() io.ReadCloser {
	if _, ok := b.ReadCloser.(io.Writer); !ok {
		return b
	}
	if _, ok := b.ReadCloser.(closeWriter); ok {
		return halfCloseConn{upgradedConn{b}}
	}
	return upgradedConn{b}
}
