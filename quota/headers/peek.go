package headers

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// A peekedBody is a response body whose first bytes have been read because they may state
// what the headers do not. The bytes are put back, so that the caller reads the complete
// body, and the caller does not wait for a slow body.
//
//	response ──▶ first bytes, at most 100 ms ──▶ what they state
//	                │
//	                └─ put back ─▶ [ first bytes | rest as it arrives ] ──▶ caller
//
// Bytes that are still being read when the time is over go to the caller as well.
type peekedBody struct {
	src  io.ReadCloser
	done chan struct{} // closed when the goroutine that reads ahead has ended

	mu     sync.Mutex
	head   []byte // bytes that were read ahead
	offset int    // number of bytes of head that the caller has read
	err    error  // the error that ended src
	stop   bool   // no further bytes are needed
}

// peekTimeout is the maximum time to wait for a body, measured by the system clock.
const peekTimeout = 100 * time.Millisecond

// peek returns the first bytes of the body of resp and puts them back: what arrives within
// 100 ms, and at most 8 KiB. If piece is true, it returns only the first bytes that arrive.
// An error other than the end of the body is returned to the caller that reads the body.
func peek(resp *http.Response, piece bool) []byte {
	p := &peekedBody{src: resp.Body, done: make(chan struct{}), stop: piece}
	resp.Body = p
	go p.readAhead()
	select {
	case <-p.done:
	case <-time.After(peekTimeout):
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

// addHead stores what has been read, and reports whether that is enough.
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

// readHead reads from the bytes that were read ahead. ok is false if none are left.
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

// Close implements io.Closer. It also stops reading ahead.
func (p *peekedBody) Close() error { return p.src.Close() }

// inspectsBody reports whether the body of a response may state what its headers do not: if
// InspectsBody does, and for any error below 500 if Body is set.
func (r *Reader) inspectsBody(provider *Provider, status int, h http.Header) bool {
	if r.Body != nil && status < 500 && mayBeThrottled(status) {
		return isReadableType(h)
	}
	return InspectsBody(provider, status, h)
}

// InspectsBody reports whether the body of a response of provider may state what its
// headers do not: that of a 403, 429, 503 or 529; of most errors if the provider has
// ErrorCodes; and the JSON of a 200 if it has InspectSuccessBody. A nil provider has
// neither.
func InspectsBody(provider *Provider, status int, h http.Header) bool {
	switch {
	case status == http.StatusForbidden, status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable,
		status == 529, provider != nil && len(provider.ErrorCodes) > 0 && mayBeThrottled(status):
		return isReadableType(h)
	}
	return status == http.StatusOK && provider != nil && provider.InspectSuccessBody && isJSON(h)
}

// mayBeThrottled reports whether status is an error that some APIs use for rejections
// because of a limit.
func mayBeThrottled(status int) bool {
	return status >= 400 && status != http.StatusNotFound && status != http.StatusUnauthorized
}

// isReadableType reports whether a body of this type can contain an error of an API. HTML
// pages contain too much other text.
func isReadableType(h http.Header) bool {
	t := mediaType(h)
	return t == "" || t == "text/plain" || strings.HasSuffix(t, "xml") && t != "application/xhtml+xml" || isJSON(h) ||
		t == "application/x-amz-json-1.0" || t == "application/x-amz-json-1.1"
}

// isJSON reports whether a body is a single JSON value, not a stream of values.
func isJSON(h http.Header) bool {
	t := mediaType(h)
	return t == "application/json" || t == "text/json" || strings.HasSuffix(t, "+json") && t != "application/stream+json"
}

// mediaType returns the type of a body without parameters, or "" if it is not stated.
func mediaType(h http.Header) string {
	t, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(trimBlanks(t))
}
