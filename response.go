package heed

import (
	"bytes"
	"context"
	"io"
	"math"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/httpbody"
)

// A response that is discarded for a retry is read to its end, so that its connection can be
// reused, within a size and a time beyond which a new connection costs less.
const (
	maxDrain     = 64 << 10               // bytes
	drainTimeout = 100 * time.Millisecond // on the system clock, like all network timeouts
)

// A drained is a discarded response, and what was read of it. A complete one can be returned.
type drained struct {
	data     []byte
	complete bool
	err      error // the read error other than io.EOF; nil if there was none

	resp *http.Response
	sent *http.Request // its request
}

// drain reads and closes the body of resp, which must have one, within maxDrain and
// drainTimeout. The connection of a 101 response is only closed.
//
// A goroutine of its own reads the body, because a blocked Read cannot be limited in time.
// Close unblocks it in net/http; with another Base that goroutine may remain blocked.
func drain(ctx context.Context, resp *http.Response) drained {
	if resp.ContentLength > maxDrain || resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body.Close()
		return drained{}
	}
	done := make(chan drained, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxDrain+1))
		done <- drained{data: data, complete: len(data) <= maxDrain, err: err}
	}()
	select {
	case r := <-done:
		resp.Body.Close()
		return r
	case <-time.After(drainTimeout):
	case <-ctx.Done():
	}
	closeUnread(resp)
	return drained{}
}

// closeUnread closes the body of resp while a Read may be blocked. From Go 1.27 on, net/http
// reads the rest of a closed body, up to 256 KiB, unless ContentLength states more. It would
// wait there for the mutex that the blocked Read holds, for 50 ms, or, in a bubble of
// testing/synctest, whose clock stops meanwhile, without end. It reads ContentLength before
// Close returns.
func closeUnread(resp *http.Response) {
	length := resp.ContentLength
	resp.ContentLength = math.MaxInt64
	resp.Body.Close()
	resp.ContentLength = length
}

// reader returns a body with the same content and final error as the original.
func (r drained) reader() io.ReadCloser {
	if r.err == nil {
		return io.NopCloser(bytes.NewReader(r.data))
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(r.data), httpbody.ErrReader{Err: r.err}))
}

// A bodyEOFSignal is a response body that ends its attempt at its end.
type bodyEOFSignal struct {
	io.ReadCloser
	attempt *attempt        // owned by the goroutine that sets ended
	ctx     context.Context // its end also ends the body; nil if not listed in openBodies
	index   int32           // position in openBodies, starting at 1; 0 if not listed; guarded by openBodies.mu
	ended   atomic.Bool
}

// observeBodyEnd returns a body for resp that ends a when the caller has read it to its
// end or closed it, or at most abandonedAfter after the end of the context. The body of a
// 101 response is a connection: it outlives the context, and only Close ends it.
func (a *attempt) observeBodyEnd(resp *http.Response) io.ReadCloser {
	b := &bodyEOFSignal{ReadCloser: resp.Body, attempt: a}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return b.upgraded()
	}
	if a.granted && a.ctx.Done() != nil { // without a grant there is only the context of the attempt, which ends with its parent
		b.ctx = a.ctx
		a.t.resolved.openBodies.add(b)
	}
	return b
}

func (b *bodyEOFSignal) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *bodyEOFSignal) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// end ends the attempt and returns it to the pool, on its first call only.
func (b *bodyEOFSignal) end() {
	if !b.ended.CompareAndSwap(false, true) {
		return
	}
	a := b.attempt
	if b.ctx != nil {
		a.t.resolved.openBodies.remove(b)
	}
	a.endCall()
	attemptPool.Put(a)
}

// upgraded returns b with the methods that the body of a 101 response has.
func (b *bodyEOFSignal) upgraded() io.ReadCloser {
	if _, ok := b.ReadCloser.(io.Writer); !ok {
		return b
	}
	if _, ok := b.ReadCloser.(closeWriter); ok {
		return halfCloseConn{upgradedConn{b}}
	}
	return upgradedConn{b}
}

// An upgradedConn is the body of a 101 response, which is also an io.Writer. A failed
// Read does not end it, because the other direction may still be open.
type upgradedConn struct{ *bodyEOFSignal }

func (c upgradedConn) Read(p []byte) (int, error)  { return c.ReadCloser.Read(p) }
func (c upgradedConn) Write(p []byte) (int, error) { return c.ReadCloser.(io.Writer).Write(p) }

// A halfCloseConn is an upgradedConn with CloseWrite, like the connection of http.Transport.
type halfCloseConn struct{ upgradedConn }

// A closeWriter can close the direction to the server.
type closeWriter interface{ CloseWrite() error }

func (c halfCloseConn) CloseWrite() error { return c.ReadCloser.(closeWriter).CloseWrite() }

// abandonedAfter is the maximum time from the end of a context until the claim of a body
// ends that is neither read nor closed.
const abandonedAfter = time.Second

// openBodies lists the bodies that hold a claim and have a context that can end. One timer
// checks all of them periodically: a context.AfterFunc per body would allocate more.
type openBodies struct {
	mu      sync.Mutex
	bodies  []*bodyEOFSignal
	running bool // whether a timer is set
}

func (o *openBodies) add(b *bodyEOFSignal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bodies = append(o.bodies, b)
	b.index = int32(len(o.bodies))
	if !o.running {
		o.running = true
		time.AfterFunc(abandonedAfter, o.sweep)
	}
}

// remove removes b from the list. It has no effect if b is not listed.
func (o *openBodies) remove(b *bodyEOFSignal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b.index == 0 {
		return
	}
	last := len(o.bodies) - 1
	moved := o.bodies[last] // may be b
	o.bodies[b.index-1], moved.index = moved, b.index
	o.bodies[last], b.index = nil, 0
	o.bodies = o.bodies[:last]
	if last == 0 && cap(o.bodies) > 1024 {
		o.bodies = nil // frees the memory of a load peak
	}
}

// sweep ends the claims of bodies whose contexts have ended. It looks at the contexts
// without the lock, because they may be of the caller's own type, and ends each claim on a
// goroutine of its own, so that a blocked limiter does not delay the others.
func (o *openBodies) sweep() {
	o.mu.Lock()
	bodies := slices.Clone(o.bodies)
	if o.running = len(bodies) > 0; o.running {
		time.AfterFunc(abandonedAfter, o.sweep)
	}
	o.mu.Unlock()
	for _, b := range bodies {
		if b.ctx.Err() != nil {
			go b.end()
		}
	}
}
