package heed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"
)

// A body sends the body of a request once per attempt:
//
//   - from GetBody, if there is one;
//   - else by seeking back to where it began, if it can seek;
//   - else from what was kept while it was sent, if that is not too much;
//   - else it is sent once.
//
// Nothing is read before the first attempt, and there is never an attempt with an
// empty body for want of a better one.
type body struct {
	source      source
	rewinder    *rewindBody   // of fromRewind
	pending     io.ReadCloser // opened for the next attempt, and not given to Base yet; nil: none
	givenToBase bool          // Base was given a body at least once, and closes what it was given
}

// A source is where the body of another attempt comes from.
type source uint8

const (
	noBody      source = iota // there is no body
	sentOnce                  // nowhere: it can be sent once
	fromGetBody               // Request.GetBody
	fromRewind                // a rewindBody
)

// bodyOf returns how the body of req is sent. At most maxLength bytes of it are kept.
func bodyOf(req *http.Request, maxLength int64) body {
	switch {
	case req.Body == nil || req.Body == http.NoBody:
		return body{source: noBody}
	case req.GetBody != nil:
		return body{source: fromGetBody}
	}
	r := newRewindBody(req, maxLength)
	if r == nil {
		return body{source: sentOnce}
	}
	return body{source: fromRewind, rewinder: r, pending: r.newReader()}
}

// checkReplayable opens the body of another attempt, or returns why there is none.
func (b *body) checkReplayable(req *http.Request) (err error) {
	switch b.source {
	case sentOnce:
		return ErrBodyNotReplayable
	case fromGetBody:
		if b.pending, err = req.GetBody(); err != nil {
			return fmt.Errorf("heed: the body cannot be sent again: GetBody: %w", err)
		}
		if replaced(req, b.pending) {
			return errBodyReplaced
		}
	case fromRewind:
		return b.rewinder.replayErr()
	}
	return nil
}

// rewind makes ready what checkReplayable could not while Base was still reading.
func (b *body) rewind(ctx context.Context) (err error) {
	if b.source == fromRewind {
		b.pending, err = b.rewinder.rewind(ctx)
	}
	return err
}

// next returns the body of the attempt that is about to be sent. isNew: it is not
// that of req.
func (b *body) next(req *http.Request) (body io.ReadCloser, isNew bool) {
	if b.pending == nil {
		return req.Body, false
	}
	return b.pending, true
}

// markGiven records that Base is given the body that next returned, and closes it from
// now on.
func (b *body) markGiven() { b.pending, b.givenToBase = nil, true }

// finish closes what Base was not given: the body of an attempt that was prepared
// and not sent, and the caller's own if nothing was sent. No attempt follows.
func (b *body) finish(req *http.Request) {
	closeBody(b.pending)
	switch {
	case b.rewinder != nil:
		b.rewinder.finish()
	case !b.givenToBase:
		closeBody(req.Body)
	}
	*b = body{givenToBase: true} // nothing is left to close
}

var errBodyReplaced = errors.New("heed: the body cannot be sent again: GetBody returns another one than Body: set both")

// replaced reports whether opened, which GetBody returned, is not the body that was
// sent, as when somebody has put a compressed one into Body and nothing into
// GetBody. It shows in the size of the readers that http.NewRequest knows.
func replaced(req *http.Request, opened io.ReadCloser) bool {
	n, ok := sizeOf(opened)
	if !ok {
		return false
	}
	if sent, ok := sizeOf(req.Body); ok && sent != n {
		return true
	}
	return req.ContentLength > 0 && req.ContentLength != n
}

// What io.NopCloser returns, for readers without and with WriteTo.
var nopClosers = [...]reflect.Type{
	reflect.TypeOf(io.NopCloser(nil)),
	reflect.TypeOf(io.NopCloser(new(bytes.Reader))),
}

// sizeOf returns the size of a *bytes.Reader or *strings.Reader that was made a
// ReadCloser by io.NopCloser, whether it was read or not.
func sizeOf(b io.ReadCloser) (int64, bool) {
	if t := reflect.TypeOf(b); t != nopClosers[0] && t != nopClosers[1] {
		return 0, false
	}
	switch r := reflect.ValueOf(b).Field(0).Interface().(type) {
	case *bytes.Reader:
		return r.Size(), true
	case *strings.Reader:
		return r.Size(), true
	}
	return 0, false
}

// A rewindBody is a body that can be read once, and is sent several times. Every
// attempt gets a pass over it:
//
//	1st pass  ══════════════▶ read from the source, and kept
//	2nd pass  ──────────────▶═══════▶ first what was kept, then the source
//
// A source that can seek is sent back to where it began instead, and nothing is
// kept. The source is closed when the last pass is.
type rewindBody struct {
	source io.ReadCloser
	seeker io.Seeker // nil: the source cannot seek
	start  int64     // where the source began

	mu         sync.Mutex
	blocks     []*block
	length     int         // bytes in blocks
	maxLength  int64       // most bytes kept
	overflowed bool        // there was more than that; blocks are gone
	err        error       // how the source ended
	finished   bool        // no pass follows
	current    *bodyReader // nil: none yet
}

// A block is what a rewindBody keeps its bytes in.
type block [16 << 10]byte

var blockPool = sync.Pool{New: func() any { return new(block) }}

// newRewindBody returns nil if the body of req can neither seek nor be kept.
func newRewindBody(req *http.Request, maxLength int64) *rewindBody {
	r := &rewindBody{source: req.Body, maxLength: maxLength}
	if s, ok := req.Body.(io.Seeker); ok {
		if at, err := s.Seek(0, io.SeekCurrent); err == nil {
			r.seeker, r.start = s, at
			return r
		}
	}
	if maxLength <= 0 || req.ContentLength > maxLength {
		return nil
	}
	return r
}

// newReader returns a body that reads r from its beginning.
func (r *rewindBody) newReader() *bodyReader {
	r.current = &bodyReader{rewindBody: r, idle: make(chan struct{})}
	return r.current
}

// replayErr returns an error if r cannot be sent again.
func (r *rewindBody) replayErr() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil && r.err != io.EOF {
		return r.err // and it would be the same again
	}
	if r.overflowed || r.finished {
		return ErrBodyNotReplayable
	}
	return nil
}

// closeTimeout is how long Base may take to close a body after the answer is closed.
const closeTimeout = time.Second

// rewind returns another pass. First it waits until the one before is closed, as
// http.RoundTripper asks of those who use a body again.
func (r *rewindBody) rewind(ctx context.Context) (io.ReadCloser, error) {
	r.mu.Lock()
	idle := r.current.idle
	r.mu.Unlock()
	timer := time.NewTimer(closeTimeout)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
		return nil, ErrBodyNotReplayable
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := r.replayErr(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seeker != nil {
		if _, err := r.seeker.Seek(r.start, io.SeekStart); err != nil {
			return nil, err
		}
	}
	return r.newReader(), nil
}

// getBody is Request.GetBody of the attempts, for what net/http sends again by
// itself: requests on connections that turn out to be closed, and HTTP/2 streams
// that were refused.
func (r *rewindBody) getBody() (io.ReadCloser, error) { return r.rewind(context.Background()) }

// finish says that no pass follows. Base may still be reading the last one.
func (r *rewindBody) finish() {
	r.mu.Lock()
	r.finished = true
	closed := r.current.closed
	r.mu.Unlock()
	if closed {
		r.end()
	}
}

// buffer keeps what a pass has read from the source.
func (r *rewindBody) buffer(p []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.err = err
	}
	if r.seeker != nil || r.overflowed || r.finished {
		return
	}
	if int64(r.length+len(p)) > r.maxLength {
		r.overflowed = true
		r.freeBlocks()
		return
	}
	for len(p) > 0 {
		at := r.length % len(block{})
		if at == 0 {
			r.blocks = append(r.blocks, blockPool.Get().(*block))
		}
		n := copy(r.blocks[len(r.blocks)-1][at:], p)
		r.length, p = r.length+n, p[n:]
	}
}

// readBuffered copies what was kept from at on. It is false if nothing was. r.mu is held.
func (r *rewindBody) readBuffered(p []byte, at int) (int, error, bool) {
	if r.seeker != nil {
		return 0, nil, false
	}
	if at >= r.length {
		return 0, r.err, r.err != nil
	}
	size := len(block{})
	kept := r.blocks[at/size][:min(size, r.length-at/size*size)]
	return copy(p, kept[at%size:]), nil, true
}

// freeBlocks gives back what was kept.
func (r *rewindBody) freeBlocks() {
	for _, c := range r.blocks {
		blockPool.Put(c)
	}
	r.blocks, r.length = nil, 0
}

// end closes the source and gives back what was kept.
func (r *rewindBody) end() error {
	r.mu.Lock()
	r.freeBlocks()
	r.mu.Unlock()
	return r.source.Close()
}

// A bodyReader is the body of one attempt. Only the newest one is ever read.
//
// Base may close it while a Read still hangs. What that Read brings belongs to the
// next pass, so the pass counts as idle only when it is closed and not being read.
type bodyReader struct {
	*rewindBody
	at      int
	reading bool
	closed  bool
	idle    chan struct{}
}

// Read implements io.Reader.
func (p *bodyReader) Read(b []byte) (int, error) {
	if n, err, ok := p.readOrBegin(b); ok {
		p.at += n
		return n, err
	}
	n, err := p.source.Read(b)
	p.buffer(b[:n], err)
	p.at += n
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading = false; p.closed {
		close(p.idle)
	}
	return n, err
}

// readOrBegin is a Read from what was kept. If it is false, reading the source begins.
func (p *bodyReader) readOrBegin(b []byte) (int, error, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, http.ErrBodyReadAfterClose, true
	}
	n, err, ok := p.readBuffered(b, p.at)
	p.reading = !ok
	return n, err, ok
}

// Close implements io.Closer.
func (p *bodyReader) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	if p.closed = true; !p.reading {
		close(p.idle)
	}
	last := p.finished
	p.mu.Unlock()
	if last {
		return p.end()
	}
	return nil
}

func closeBody(b io.Closer) {
	if b != nil {
		b.Close()
	}
}
