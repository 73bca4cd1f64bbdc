package heed

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

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
	length     int         // bytes in kept
	maxLength  int64       // most bytes kept
	overflowed bool        // there was more than that; kept is gone
	err        error       // how the source ended
	finished   bool        // no pass follows
	current    *bodyReader // nil: none yet
}

// A block is what a replay keeps its bytes in.
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

// freeBlocks gives back what was kept.
func (r *rewindBody) freeBlocks() {
	for _, c := range r.blocks {
		blockPool.Put(c)
	}
	r.blocks, r.length = nil, 0
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

// end closes the source and gives back what was kept.
func (r *rewindBody) end() error {
	r.mu.Lock()
	r.freeBlocks()
	r.mu.Unlock()
	return r.source.Close()
}
