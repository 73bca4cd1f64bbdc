package headers

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A body is looked into where it may say what the headers do not. The caller must
// not notice: what was read is put back, and nobody waits for a body that comes
// slowly.
//
//	answer ──▶ first bytes, 100 ms at most ──▶ what they say
//	                 │
//	                 └─ put back ─▶ [ first bytes | rest as it comes ] ──▶ caller
//
// What is still being read when the time is over goes to the caller, too.
type peekedBody struct {
	src  io.ReadCloser
	done chan struct{} // closed when nobody reads ahead any more

	mu     sync.Mutex
	head   []byte // was read ahead
	offset int    // of head, by the caller
	err    error  // what ended src
	stop   bool   // what has come is enough
}

// peekTimeout is how long a body is waited for, on the system clock, as the network is.
const peekTimeout = 100 * time.Millisecond

// peek returns the first bytes of the body of resp and puts them back in front of
// the rest: what arrives within 100 ms, and no more than 8 KiB; of a piece, only the
// first bytes that arrive. An error other than the end of the body is left for the
// reader of the body to find.
func peek(resp *http.Response, piece bool) []byte {
	if resp.Body == nil || resp.Body == http.NoBody {
		return nil
	}
	p := &peekedBody{src: resp.Body, done: make(chan struct{}), stop: piece}
	resp.Body = p
	go p.readAhead()
	timer := time.NewTimer(peekTimeout)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop = true
	return p.head
}

// readAhead reads the first bytes.
func (p *peekedBody) readAhead() {
	defer close(p.done)
	buf := make([]byte, maxPeek)
	for n := 0; n < maxPeek; {
		m, err := p.src.Read(buf[n:])
		n += m
		if p.addHead(buf[:n], err) {
			return
		}
	}
}

// addHead notes what has been read, and reports whether that is enough.
func (p *peekedBody) addHead(head []byte, err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.head, p.err = head, err
	return err != nil || p.stop && len(head) > 0
}

// Read implements io.Reader.
func (p *peekedBody) Read(b []byte) (int, error) {
	if n, ok, err := p.readHead(b); ok {
		return n, err
	}
	<-p.done
	if n, ok, err := p.readHead(b); ok {
		return n, err
	}
	return p.src.Read(b)
}

// readHead reads of what was read ahead. It is false if there is none left.
func (p *peekedBody) readHead(b []byte) (n int, ok bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n = copy(b, p.head[p.offset:])
	p.offset += n
	if n > 0 || len(b) == 0 {
		return n, true, nil
	}
	return 0, p.err != nil, p.err
}

// peekedHead returns the first bytes of a body that peek has looked into; nil for any other.
func peekedHead(body io.ReadCloser) []byte {
	p, ok := body.(*peekedBody)
	if !ok {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.head
}

// Close implements io.Closer. It also ends reading ahead.
func (p *peekedBody) Close() error { return p.src.Close() }

// inspectsBody reports whether the body of a response may state what its headers do not: as
// InspectsBody says, and of any error below 500 if Body is set.
func (r *Reader) inspectsBody(provider *Provider, status int, h http.Header) bool {
	if r.Body != nil && status < 500 && mayBeThrottled(status) {
		return isReadableType(h)
	}
	return InspectsBody(provider, status, h)
}

// InspectsBody reports whether the body of a response of provider may state what its headers do
// not: that of a 403, 429, 503 or 529; of most errors if the provider has ErrorCodes; and the
// JSON of a 200 if it has InspectSuccessBody. A nil provider has neither.
func InspectsBody(provider *Provider, status int, h http.Header) bool {
	switch {
	case status == http.StatusForbidden, status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable,
		status == 529, provider != nil && len(provider.ErrorCodes) > 0 && mayBeThrottled(status):
		return isReadableType(h)
	}
	return status == http.StatusOK && provider != nil && provider.InspectSuccessBody && isJSON(h)
}

// mayBeThrottled reports whether status is an error that some API refuses with because of a limit.
func mayBeThrottled(status int) bool {
	return status >= 400 && status != http.StatusNotFound && status != http.StatusUnauthorized
}

// isReadableType reports whether a body of this type can hold the words of an API. Pages
// for people hold too many other words.
func isReadableType(h http.Header) bool {
	t := mediaType(h)
	return t == "" || t == "text/plain" || strings.HasSuffix(t, "xml") && t != "application/xhtml+xml" || isJSON(h) ||
		t == "application/x-amz-json-1.0" || t == "application/x-amz-json-1.1"
}

// isJSON reports whether a body is one JSON value, and not a stream of them.
func isJSON(h http.Header) bool {
	t := mediaType(h)
	return t == "application/json" || t == "text/json" || strings.HasSuffix(t, "+json") && t != "application/stream+json"
}

// mediaType returns the type of a body without parameters; "": not said.
func mediaType(h http.Header) string {
	t, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(trimBlanks(t))
}

// Read returns what a response that was received now states about limits: its headers, and the
// first bytes of its body where these may state more. It does not read the body of a rejection
// that states a delay. If it reads a body, it replaces resp.Body by one that yields all of it, and
// waits at most 100 ms for the bytes. provider is what Provider returned for the host; it may be nil.
func (r *Reader) Read(provider *Provider, resp *http.Response, now time.Time) Report {
	rep := r.parse(provider, resp.StatusCode, resp.Header, now)
	if r.Body == nil && rep.Throttled && rep.HasRetryAfter || !r.inspectsBody(provider, resp.StatusCode, resp.Header) {
		return rep
	}
	return r.addBody(rep, resp)
}

// addBody adds to rep what the body says. It is apart from Read so that a report
// without a body stays on the stack.
func (r *Reader) addBody(rep Report, resp *http.Response) Report {
	if resp.StatusCode < 400 && resp.ContentLength > maxPeek {
		return rep // no refusal is so long
	}
	// Where nobody knows when the end comes, there is no waiting for it.
	if head := peek(resp, resp.ContentLength < 0); len(head) > 0 {
		r.ReadBody(resp.StatusCode, resp.Header, head, &rep)
	}
	return rep
}

// ReadPeeked returns what Read has returned for resp, which was received now, or what it would
// return from the headers alone if it has not read the body. It reads nothing from the body.
func (r *Reader) ReadPeeked(provider *Provider, resp *http.Response, now time.Time) Report {
	rep := r.parse(provider, resp.StatusCode, resp.Header, now)
	if head := peekedHead(resp.Body); len(head) > 0 {
		r.ReadBody(resp.StatusCode, resp.Header, head, &rep)
	}
	return rep
}
