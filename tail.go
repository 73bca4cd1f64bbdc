package heed

import (
	"context"
	"io"
	"sync/atomic"
)

// A tail is the body of an answer whose end the limits wait for: a limit on what
// is in flight has its place back when the caller has read or closed it, or when
// the context has ended.
type tail struct {
	io.ReadCloser
	call  *call
	stop  func() bool // ends waiting for the context; nil: it never ends
	ended atomic.Bool
}

// begin puts the tail around the answer of c.
func (b *tail) begin(c *call) {
	b.call, b.ReadCloser, c.resp.Body = c, c.resp.Body, b
	if c.ctx.Done() != nil {
		b.stop = context.AfterFunc(c.ctx, b.tell)
	}
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

// end tells the limits, on the caller's goroutine.
func (b *tail) end() {
	if b.stop != nil {
		b.stop()
	}
	b.tell()
}

// tell tells the limits, once.
func (b *tail) tell() {
	if b.ended.CompareAndSwap(false, true) {
		b.call.release()
	}
}
