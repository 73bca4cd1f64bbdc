package heed

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// A replay is a body that can be read once, and is sent several times. Every
// attempt gets a pass over it:
//
//	1st pass  ══════════════▶ read from the source, and kept
//	2nd pass  ──────────────▶═══════▶ first what was kept, then the source
//
// A source that can seek is sent back to where it began instead, and nothing is
// kept. The source is closed when the last pass is.
type replay struct {
	source io.ReadCloser
	seeker io.Seeker // nil: the source cannot seek
	start  int64     // where the source began

	mu     sync.Mutex
	kept   []*chunk
	length int   // bytes in kept
	keep   int64 // most bytes kept
	over   bool  // there was more than that; kept is gone
	err    error // how the source ended
	last   bool  // no pass follows
	open   *pass // nil: none yet
}

// A chunk is what a replay keeps its bytes in.
type chunk [16 << 10]byte

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// newReplay returns nil if the body of req can neither seek nor be kept.
func newReplay(req *http.Request, keep int64) *replay {
	r := &replay{source: req.Body, keep: keep}
	if s, ok := req.Body.(io.Seeker); ok {
		if at, err := s.Seek(0, io.SeekCurrent); err == nil {
			r.seeker, r.start = s, at
			return r
		}
	}
	if keep <= 0 || req.ContentLength > keep {
		return nil
	}
	return r
}

// pass returns a body that reads r from its beginning.
func (r *replay) pass() *pass {
	r.open = &pass{replay: r, idle: make(chan struct{})}
	return r.open
}

// lost returns an error if r cannot be sent again.
func (r *replay) lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil && r.err != io.EOF {
		return r.err // and it would be the same again
	}
	if r.over || r.last {
		return ErrBody
	}
	return nil
}

// closeTime is how long Base may take to close a body after the answer is closed.
const closeTime = time.Second

// rewind returns another pass. First it waits until the one before is closed, as
// http.RoundTripper asks of those who use a body again.
func (r *replay) rewind(ctx context.Context) (io.ReadCloser, error) {
	r.mu.Lock()
	idle := r.open.idle
	r.mu.Unlock()
	timer := time.NewTimer(closeTime)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
		return nil, ErrBody
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if err := r.lost(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seeker != nil {
		if _, err := r.seeker.Seek(r.start, io.SeekStart); err != nil {
			return nil, err
		}
	}
	return r.pass(), nil
}

// getBody is Request.GetBody of the attempts, for what net/http sends again by
// itself: requests on connections that turn out to be closed, and HTTP/2 streams
// that were refused.
func (r *replay) getBody() (io.ReadCloser, error) { return r.rewind(context.Background()) }

// finish says that no pass follows. Base may still be reading the last one.
func (r *replay) finish() {
	r.mu.Lock()
	r.last = true
	closed := r.open.closed
	r.mu.Unlock()
	if closed {
		r.end()
	}
}

// record keeps what a pass has read from the source.
func (r *replay) record(p []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.err = err
	}
	if r.seeker != nil || r.over || r.last {
		return
	}
	if int64(r.length+len(p)) > r.keep {
		r.over = true
		r.forget()
		return
	}
	for len(p) > 0 {
		at := r.length % len(chunk{})
		if at == 0 {
			r.kept = append(r.kept, chunks.Get().(*chunk))
		}
		n := copy(r.kept[len(r.kept)-1][at:], p)
		r.length, p = r.length+n, p[n:]
	}
}

// forget gives back what was kept.
func (r *replay) forget() {
	for _, c := range r.kept {
		chunks.Put(c)
	}
	r.kept, r.length = nil, 0
}

// read copies what was kept from at on. It is false if nothing was. r.mu is held.
func (r *replay) read(p []byte, at int) (int, error, bool) {
	if r.seeker != nil {
		return 0, nil, false
	}
	if at >= r.length {
		return 0, r.err, r.err != nil
	}
	size := len(chunk{})
	in := r.kept[at/size][:min(size, r.length-at/size*size)]
	return copy(p, in[at%size:]), nil, true
}

// A pass is the body of one attempt. Only the newest one is ever read.
//
// Base may close it while a Read still hangs. What that Read brings belongs to the
// next pass, so the pass counts as idle only when it is closed and not being read.
type pass struct {
	*replay
	at      int
	reading bool
	closed  bool
	idle    chan struct{}
}

// Read implements io.Reader.
func (p *pass) Read(b []byte) (int, error) {
	if n, err, ok := p.begin(b); ok {
		p.at += n
		return n, err
	}
	n, err := p.source.Read(b)
	p.record(b[:n], err)
	p.at += n
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading = false; p.closed {
		close(p.idle)
	}
	return n, err
}

// begin is a Read from what was kept. If it is false, reading the source begins.
func (p *pass) begin(b []byte) (int, error, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, http.ErrBodyReadAfterClose, true
	}
	n, err, ok := p.read(b, p.at)
	p.reading = !ok
	return n, err, ok
}

// Close implements io.Closer.
func (p *pass) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	if p.closed = true; !p.reading {
		close(p.idle)
	}
	last := p.last
	p.mu.Unlock()
	if last {
		return p.end()
	}
	return nil
}

// end closes the source and gives back what was kept.
func (r *replay) end() error {
	r.mu.Lock()
	r.forget()
	r.mu.Unlock()
	return r.source.Close()
}
