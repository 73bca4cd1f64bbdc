package heedtest

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxBody is the maximum number of bytes of a request body that are kept.
const maxBody = 1 << 20

// A Request describes a request as the server received it.
type Request struct {
	// N is the number of the request, counted from 1 in order of arrival.
	N int

	// At is the time at which the header had arrived.
	At time.Time

	// Conn is the number of the connection, counted from 1 in order of acceptance.
	Conn int

	// Method, URL, Host, Proto and Header are those of the request. URL is the target of
	// the request line.
	Method string
	URL    string
	Host   string
	Proto  string
	Header http.Header

	// Body is the first MiB of the body. Nil means that the body is empty or was not
	// read because of SkipBodies.
	Body []byte

	// BodyErr is the error of reading the body. Nil means that it was read completely.
	BodyErr error

	// Status is the status of the response. Zero means that none has been sent yet.
	Status int

	// EarlyBy is the time that was left of an earlier Retry-After when the request
	// arrived. Zero means that the request was not early.
	EarlyBy time.Duration
}

// A recorder records requests and connections for a Server.
type recorder struct {
	mu       sync.Mutex
	requests []Request
	conns    []*conn
}

// Requests returns all requests so far, in order of arrival.
func (s *Server) Requests() []Request {
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	return slices.Clone(s.recorder.requests)
}

// EarlyRetries returns the requests that arrived before an earlier Retry-After had elapsed.
func (s *Server) EarlyRetries() []Request {
	return slices.DeleteFunc(s.Requests(), func(a Request) bool { return a.EarlyBy == 0 })
}

// Busiest returns the requests of the busiest interval of length per, in order of arrival: no
// interval of this length, from any moment up to but not including the moment per later, has
// more. A client that sends at most 10 requests per second has at most 10 in any second. A per
// of zero or less means requests at the same instant.
func Busiest(requests []Request, per time.Duration) []Request {
	sorted := slices.SortedStableFunc(slices.Values(requests), func(a, b Request) int { return a.At.Compare(b.At) })
	from, to, first := 0, 0, 0
	for i, r := range sorted {
		for r.At.Sub(sorted[first].At) >= max(per, 1) {
			first++
		}
		if i+1-first > to-from {
			from, to = first, i+1
		}
	}
	return sorted[from:to]
}

// recordRequest records r, reads its body unless skipBody is true, and returns its number.
func (t *recorder) recordRequest(r *http.Request, skipBody bool) int {
	n := t.add(Request{
		At:     time.Now(),
		Conn:   connOf(r).n,
		Method: r.Method,
		URL:    r.RequestURI,
		Host:   r.Host,
		Proto:  r.Proto,
		Header: r.Header.Clone(),
	})
	if skipBody {
		return n
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
	}
	t.update(n, func(a *Request) {
		if len(body) > 0 {
			a.Body = body
		}
		a.BodyErr = err
	})
	return n
}

func (t *recorder) add(a Request) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.N = len(t.requests) + 1
	t.requests = append(t.requests, a)
	return a.N
}

func (t *recorder) update(n int, f func(*Request)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.requests[n-1])
}

func (t *recorder) get(n int) (got Request) {
	t.update(n, func(a *Request) { got = *a })
	return got
}

func (t *recorder) setStatus(n, status int) { t.update(n, func(a *Request) { a.Status = status }) }

func (t *recorder) setEarly(n int, by time.Duration) {
	t.update(n, func(a *Request) { a.EarlyBy = by })
}

func (t *recorder) addConn(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns = append(t.conns, c)
	c.n = len(t.conns)
}

func (t *recorder) closeConns() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.conns {
		c.Close()
	}
}
