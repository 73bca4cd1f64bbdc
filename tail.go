package heed

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/heed-go/heed/throttle"
)

// A lease is what a call holds that can last as long as the body of its response:
// the context of the attempt, and the claims of limits that hold until the end. It is
// taken from a pool. The call owns it until RoundTrip returns a response with such a
// body; from then on the body does.
type lease struct {
	t       *Transport
	ctx     context.Context // of the request
	endless context.Context // ctx without its end; nil: not needed yet
	ticket  throttle.Ticket
	foreign bool                    // there are limits other than the Tracker's
	held    bool                    // the ticket is granted, and the grant has not ended
	used    bool                    // Base was given the attempt that the ticket is granted for
	outcome throttle.Outcome        // of that attempt
	cancel  context.CancelCauseFunc // ends the context of the attempt; nil: it is the request's own
}

var leases = sync.Pool{New: func() any { return new(lease) }}

// detached returns the context for what ends a claim: it does not end, since what was
// claimed has to be given back also when the caller is gone. The Tracker's limits do
// not look at it.
func (l *lease) detached() context.Context {
	if !l.foreign || l.ctx.Done() == nil {
		return l.ctx
	}
	if l.endless == nil {
		l.endless = context.WithoutCancel(l.ctx)
	}
	return l.endless
}

// holdsUntilEnd reports whether a limit waits for the end of the body.
func (l *lease) holdsUntilEnd() bool {
	if !l.foreign {
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
func (l *lease) release() {
	if l.cancel != nil {
		l.cancel(nil)
		l.cancel = nil
	}
	if l.held {
		l.held = false
		l.t.own.waiter.Observe(l.detached(), &l.ticket, throttle.Feedback{Now: l.t.now(), Outcome: l.outcome})
	}
}

// lasts reports whether resp has a body with an end to wait for, or is a connection.
func lasts(resp *http.Response) bool {
	return resp != nil && resp.Body != nil && resp.Body != http.NoBody
}

// upTo returns the body of resp so that l is released at its end: when the caller has
// read or closed it, or within abandonedAfter of the end of the context. The body of
// 101 is a connection, which outlives the context and ends when it is closed.
func (l *lease) upTo(resp *http.Response) io.ReadCloser {
	b := &tail{ReadCloser: resp.Body, lease: l}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return b.connection()
	}
	if l.held && l.ctx.Done() != nil { // the context of the attempt ends by itself
		b.ctx = l.ctx
		l.t.own.open.add(b)
	}
	return b
}

// A tail is the body of a response that releases a lease at its end.
type tail struct {
	io.ReadCloser
	lease *lease          // belongs to the goroutine that sets ended
	ctx   context.Context // whose end is the end of the body, too; nil: of none
	place int32           // in openBodies, counted from 1; guarded by its mu; 0: not listed
	ended atomic.Bool
}

// Read implements io.Reader.
func (b *tail) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

// Close implements io.Closer.
func (b *tail) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// end releases the lease, once, and returns it to the pool. The caller calls it after a
// Read that failed or a Close, and openBodies when the context has ended.
func (b *tail) end() {
	if !b.ended.CompareAndSwap(false, true) {
		return
	}
	l := b.lease
	if b.ctx != nil {
		l.t.own.open.remove(b)
	}
	l.release()
	*l = lease{}
	leases.Put(l)
}

// A connection is the body of 101, which can be written to. A Read that fails does
// not end it: the other direction may still be open.
type connection struct{ *tail }

func (c connection) Read(p []byte) (int, error)  { return c.ReadCloser.Read(p) }
func (c connection) Write(p []byte) (int, error) { return c.ReadCloser.(io.Writer).Write(p) }

// A halfCloser is a connection that can close the direction to the server alone, as
// that of http.Transport can.
type halfCloser struct{ connection }

type closeWriter interface{ CloseWrite() error }

func (c halfCloser) CloseWrite() error { return c.ReadCloser.(closeWriter).CloseWrite() }

// connection returns b with the methods that the body of 101 has.
func (b *tail) connection() io.ReadCloser {
	if _, ok := b.ReadCloser.(io.Writer); !ok {
		return b
	}
	if _, ok := b.ReadCloser.(closeWriter); ok {
		return halfCloser{connection{b}}
	}
	return connection{b}
}
