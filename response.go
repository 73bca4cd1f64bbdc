package heed

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/httpbody"
)

// An answer that is not final is read to its end, so that the connection can be
// used again, but only if the end comes soon: a longer body costs more than a new
// connection.
const (
	maxDrain     = 64 << 10               // bytes
	drainTimeout = 100 * time.Millisecond // on the system clock, as the network is
)

// A drained is what was read of an answer that is not final. If it is all there was,
// the answer can still be handed out.
type drained struct {
	data     []byte
	complete bool
	err      error // what ended it, if it was not its end
}

// drain reads and closes the body of resp.
//
// The reader has a goroutine of its own, since nothing else can bound the time of
// a Read that hangs: Close unblocks it in net/http, and if another Base does not
// do so, it is that goroutine that hangs and not the caller.
func drain(ctx context.Context, resp *http.Response) drained {
	if !httpbody.HasBody(resp) {
		return drained{complete: true}
	}
	defer resp.Body.Close()
	if resp.ContentLength > maxDrain {
		return drained{}
	}
	done := make(chan drained, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(resp.Body, maxDrain+1))
		done <- drained{data, len(data) <= maxDrain, err}
	}()
	timer := time.NewTimer(drainTimeout)
	defer timer.Stop()
	select {
	case r := <-done:
		return r
	case <-timer.C:
	case <-ctx.Done():
	}
	return drained{}
}

// reader returns a body that reads as the original would have.
func (r drained) reader() io.ReadCloser {
	if r.err == nil {
		return io.NopCloser(bytes.NewReader(r.data))
	}
	return io.NopCloser(io.MultiReader(bytes.NewReader(r.data), httpbody.ErrReader{Err: r.err}))
}

// snippet returns the beginning of r.
func (r drained) snippet() string { return httpbody.Snippet(r.data) }

// hasOpenBody reports whether resp has a body with an end to wait for, or is a connection.
func hasOpenBody(resp *http.Response) bool {
	return resp != nil && resp.Body != nil && resp.Body != http.NoBody
}

// A bodyEOFSignal is the body of a response that releases resources at its end.
type bodyEOFSignal struct {
	io.ReadCloser
	resources *attemptResources // belongs to the goroutine that sets ended
	ctx       context.Context   // whose end is the end of the body, too; nil: of none
	index     int32             // in openBodies, counted from 1; guarded by its mu; 0: not listed
	ended     atomic.Bool
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

// end releases the resources, once, and returns it to the pool. The caller calls it after a
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

// abandonedAfter is the longest time from the end of a context until the claim of a
// body that is neither read nor closed has ended.
const abandonedAfter = time.Second

// openBodies lists the bodies that hold a claim and whose contexts can end. A timer
// that looks at all of them while there are any takes the place of a
// context.AfterFunc for each, which allocates more than the rest of the wrapper.
type openBodies struct {
	mu      sync.Mutex
	bodies  []*bodyEOFSignal
	timer   *time.Timer // nil: nothing was listed yet
	running bool        // the timer fires within abandonedAfter
}

// add lists b.
func (o *openBodies) add(b *bodyEOFSignal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bodies = append(o.bodies, b)
	b.index = int32(len(o.bodies))
	if o.running {
		return
	}
	o.running = true
	if o.timer == nil {
		o.timer = time.AfterFunc(abandonedAfter, o.sweep)
	} else {
		o.timer.Reset(abandonedAfter)
	}
}

// remove takes b from the list. It has no effect if b is not listed.
func (o *openBodies) remove(b *bodyEOFSignal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b.index == 0 {
		return
	}
	last := len(o.bodies) - 1
	moved := o.bodies[last]
	o.bodies[last] = nil
	o.bodies = o.bodies[:last]
	if moved != b {
		o.bodies[b.index-1] = moved
		moved.index = b.index
	}
	b.index = 0
	if last == 0 && cap(o.bodies) > 1024 {
		o.bodies = nil // of a time with many
	}
}

// sweep ends the claims of bodies whose contexts have ended. Limiters run on
// goroutines of their own, so that one that hangs delays no other.
func (o *openBodies) sweep() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, b := range o.bodies {
		if b.ctx.Err() != nil {
			go b.end()
		}
	}
	if o.running = len(o.bodies) > 0; o.running {
		o.timer.Reset(abandonedAfter)
	}
}
