package heedtest

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxBody is how much of a request's body is kept.
const maxBody = 1 << 20

// A Request is a request as the server saw it.
type Request struct {
	N      int       // counted from 1, in order of arrival
	At     time.Time // when its header had arrived
	Conn   int       // which connection it came over, counted from 1
	Method string
	URL    string // as in the request line
	Host   string
	Proto  string
	Header http.Header

	Body    []byte // its first MiB; nil: there was none, or SkipBodies
	BodyErr error  // why the rest could not be read; nil: all was read

	// Status is what it was answered with; 0: nothing, so far.
	Status int

	// EarlyBy is how much too early it came, after it was told to come later. 0:
	// it did not.
	EarlyBy time.Duration
}

// recorder is what a Server remembers.
type recorder struct {
	mu       sync.Mutex
	requests []Request
	conns    []*conn
}

// Requests returns all requests so far, in order.
func (s *Server) Requests() []Request {
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	return slices.Clone(s.recorder.requests)
}

// EarlyRetries returns the requests that came before Retry-After was over.
func (s *Server) EarlyRetries() []Request {
	return slices.DeleteFunc(s.Requests(), func(a Request) bool { return a.EarlyBy == 0 })
}

// Conns returns how many connections were made so far.
func (s *Server) Conns() int {
	s.recorder.mu.Lock()
	defer s.recorder.mu.Unlock()
	return len(s.recorder.conns)
}

// recordRequest notes r, reads its body unless leave, and returns its number.
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
