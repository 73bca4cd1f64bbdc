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

// A body provides the request body for each attempt:
//
//   - from GetBody, if it is set;
//   - else by seeking to the start position, if the body is an io.Seeker;
//   - else from a buffer that is filled while the body is sent, up to
//     RetryPolicy.MaxBodyBuffer bytes;
//   - else the request is sent once.
//
// Nothing is read before the first attempt. A request is never sent with a partial or
// empty body in place of the original.
type body struct {
	rewinder    *rewindBody   // nil if there is no body, GetBody is set, or the body can be sent only once
	pending     io.ReadCloser // the body of the next attempt until Base gets it; nil if it is that of the request
	givenToBase bool          // whether Base got a body, which it then closes
}

// bodyOf returns the body of req for several attempts. It buffers at most maxLength bytes.
func bodyOf(req *http.Request, maxLength int64) (b body) {
	if hasBody(req) && req.GetBody == nil {
		if b.rewinder = newRewindBody(req, maxLength); b.rewinder != nil {
			b.pending = b.rewinder.newReader()
		}
	}
	return b
}

func hasBody(req *http.Request) bool { return req.Body != nil && req.Body != http.NoBody }

// checkReplayable opens the body of the next attempt, or returns the error that prevents
// it. A rewindBody is opened later, by rewind.
func (b *body) checkReplayable(req *http.Request) (err error) {
	switch {
	case b.rewinder != nil:
		return b.rewinder.replayErr()
	case !hasBody(req):
		return nil
	case req.GetBody == nil:
		return ErrBodyNotReplayable
	}
	if b.pending, err = req.GetBody(); err != nil {
		return fmt.Errorf("heed: the body cannot be sent again: GetBody: %w", err)
	}
	if replaced(req, b.pending) {
		return errBodyReplaced
	}
	return nil
}

// finish closes all bodies that Base did not get: one that was opened for an attempt that
// was not sent, and the caller's own if no attempt was sent. It is called once, at the end.
func (b *body) finish(req *http.Request) {
	closeBody(b.pending)
	switch {
	case b.rewinder != nil:
		b.rewinder.finish()
	case !b.givenToBase:
		closeBody(req.Body)
	}
}

// errBodyReplaced means that GetBody and Body have different contents.
var errBodyReplaced = errors.New("heed: the body cannot be sent again: GetBody returns another one than Body: set both")

// replaced reports whether opened, a result of GetBody, differs from the body that was sent,
// such as after a middleware replaced only Body with a compressed one. It compares the sizes
// of the reader types that http.NewRequest supports. Bytes that the program had read before
// count in the sizes, but not in ContentLength.
func replaced(req *http.Request, opened io.ReadCloser) bool {
	b, ok := readerOf(opened)
	if !ok {
		return false
	}
	if sent, ok := readerOf(req.Body); ok && sent.Size() != b.Size() {
		return true
	}
	return req.ContentLength > 0 && req.ContentLength != int64(b.Len())
}

// nopClosers are the types that io.NopCloser returns for readers without and with WriteTo.
var nopClosers = [...]reflect.Type{
	reflect.TypeOf(io.NopCloser(nil)),
	reflect.TypeOf(io.NopCloser(new(bytes.Reader))),
}

// A sizedReader is a *bytes.Reader or *strings.Reader.
type sizedReader interface {
	Size() int64 // all bytes
	Len() int    // the bytes that were not read yet
}

// readerOf returns the sizedReader in an io.NopCloser.
func readerOf(b io.ReadCloser) (sizedReader, bool) {
	if t := reflect.TypeOf(b); t != nopClosers[0] && t != nopClosers[1] {
		return nil, false
	}
	switch r := reflect.ValueOf(b).Field(0).Interface().(type) {
	case *bytes.Reader:
		return r, true
	case *strings.Reader:
		return r, true
	}
	return nil, false
}

// A rewindBody sends a body several times that can be read only once. Each attempt reads
// it from the start, with a bodyReader:
//
//	1st attempt  ══════════════▶ from the source; the bytes are buffered
//	2nd attempt  ──────────────▶═══════▶ from the buffer, then from the source
//
// If the source is an io.Seeker, it is rewound to its start position instead, and nothing
// is buffered. The source is closed after the last bodyReader is closed.
type rewindBody struct {
	source io.ReadCloser
	seeker io.Seeker // nil if the source cannot seek
	start  int64     // start position of the source

	mu         sync.Mutex
	blocks     []*block
	length     int         // buffered bytes in blocks
	maxLength  int64       // maximum number of buffered bytes
	overflowed bool        // whether maxLength was exceeded; the blocks are freed then
	err        error       // final error of the source, such as io.EOF
	finished   bool        // no further bodyReader follows
	current    *bodyReader // the latest bodyReader; nil if there is none yet
}

// A block is a part of the buffer of a rewindBody.
type block [16 << 10]byte

var blockPool = sync.Pool{New: func() any { return new(block) }}

// newRewindBody returns nil if the body of req can neither seek nor be buffered.
func newRewindBody(req *http.Request, maxLength int64) *rewindBody {
	if s, ok := req.Body.(io.Seeker); ok {
		if at, err := s.Seek(0, io.SeekCurrent); err == nil {
			return &rewindBody{source: req.Body, seeker: s, start: at}
		}
	}
	if maxLength <= 0 || req.ContentLength > maxLength {
		return nil
	}
	return &rewindBody{source: req.Body, maxLength: maxLength}
}

// newReader returns a bodyReader that reads r from the start.
func (r *rewindBody) newReader() *bodyReader {
	r.current = &bodyReader{rewindBody: r, idle: make(chan struct{})}
	return r.current
}

// replayErr returns the error that prevents another attempt, or nil.
func (r *rewindBody) replayErr() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil && r.err != io.EOF {
		return r.err // a retry would fail with the same error
	}
	if r.overflowed || r.finished {
		return ErrBodyNotReplayable
	}
	return nil
}

// closeTimeout is how long Base may take to close a request body after the response.
const closeTimeout = time.Second

// rewind returns a bodyReader once the last one is closed, as http.RoundTripper requires.
func (r *rewindBody) rewind(ctx context.Context) (io.ReadCloser, error) {
	r.mu.Lock()
	idle := r.current.idle
	r.mu.Unlock()
	select {
	case <-idle:
	case <-time.After(closeTimeout):
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

// getBody is Request.GetBody of the attempts. net/http calls it for retries of its own:
// of requests on connections that were closed, and of HTTP/2 streams that were refused.
func (r *rewindBody) getBody() (io.ReadCloser, error) { return r.rewind(context.Background()) }

// finish records that no bodyReader follows the current one, which Base may still read.
func (r *rewindBody) finish() {
	r.mu.Lock()
	r.finished = true
	closed := r.current.closed
	r.mu.Unlock()
	if closed {
		_ = r.end()
	}
}

// buffer stores bytes that a bodyReader read from the source, and its error. r.mu is held.
func (r *rewindBody) buffer(p []byte, err error) {
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

func (r *rewindBody) freeBlocks() {
	for _, c := range r.blocks {
		blockPool.Put(c)
	}
	r.blocks, r.length = nil, 0
}

// end closes the source and frees the buffer.
func (r *rewindBody) end() error {
	r.mu.Lock()
	r.freeBlocks()
	r.mu.Unlock()
	return r.source.Close()
}

// A bodyReader is the body of one attempt. Only the latest one of a rewindBody is read.
//
// Base may close it while a Read is still blocked. The bytes of that Read belong to the
// buffer of the next bodyReader, so idle is closed after the Close and the Read.
type bodyReader struct {
	*rewindBody
	at      int
	reading bool
	closed  bool
	idle    chan struct{}
}

func (p *bodyReader) Read(b []byte) (int, error) {
	if n, err, ok := p.readBuffered(b); ok {
		p.at += n
		return n, err
	}
	n, err := p.source.Read(b)
	p.at += n
	p.mu.Lock()
	defer p.mu.Unlock()
	p.buffer(b[:n], err)
	if p.reading = false; p.closed {
		close(p.idle)
	}
	return n, err
}

// readBuffered reads from the buffer. If it returns false, the caller must read from the
// source, and reading is set.
func (p *bodyReader) readBuffered(b []byte) (int, error, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.closed:
		return 0, http.ErrBodyReadAfterClose, true
	case p.at < p.length:
		b = b[:min(len(b), p.length-p.at)]
		return copy(b, p.blocks[p.at/len(block{})][p.at%len(block{}):]), nil, true
	case p.err != nil && p.seeker == nil:
		return 0, p.err, true
	}
	p.reading = true
	return 0, nil, false
}

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
