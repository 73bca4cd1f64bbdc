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

// An Arrival is a request as the server saw it.
type Arrival struct {
	N      int       // counted from 1, in order of arrival
	At     time.Time // when its header had arrived
	Conn   int       // which connection it came over, counted from 1
	Method string
	URL    string // as in the request line
	Host   string
	Proto  string
	Header http.Header

	Body    []byte // its first MiB; nil: there was none, or LeaveBodies
	BodyErr error  // why the rest could not be read; nil: all was read

	// Status is what it was answered with; 0: nothing, so far.
	Status int

	// Early is how much too early it came, after it was told to come later. 0:
	// it did not.
	Early time.Duration
}

// notes is what a Server remembers.
type notes struct {
	mu       sync.Mutex
	arrivals []Arrival
	conns    []*conn
}

// Arrivals returns all requests so far, in order.
func (s *Server) Arrivals() []Arrival {
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	return slices.Clone(s.notes.arrivals)
}

// Early returns the requests that came before Retry-After was over.
func (s *Server) Early() []Arrival {
	return slices.DeleteFunc(s.Arrivals(), func(a Arrival) bool { return a.Early == 0 })
}

// Conns returns how many connections were made so far.
func (s *Server) Conns() int {
	s.notes.mu.Lock()
	defer s.notes.mu.Unlock()
	return len(s.notes.conns)
}

// arrive notes r, reads its body unless leave, and returns its number.
func (t *notes) arrive(r *http.Request, leave bool) int {
	n := t.add(Arrival{
		At:     time.Now(),
		Conn:   connOf(r).n,
		Method: r.Method,
		URL:    r.RequestURI,
		Host:   r.Host,
		Proto:  r.Proto,
		Header: r.Header.Clone(),
	})
	if leave {
		return n
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err == nil {
		_, err = io.Copy(io.Discard, r.Body)
	}
	t.change(n, func(a *Arrival) {
		if len(body) > 0 {
			a.Body = body
		}
		a.BodyErr = err
	})
	return n
}

func (t *notes) add(a Arrival) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	a.N = len(t.arrivals) + 1
	t.arrivals = append(t.arrivals, a)
	return a.N
}

func (t *notes) change(n int, f func(*Arrival)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.arrivals[n-1])
}

func (t *notes) get(n int) (got Arrival) {
	t.change(n, func(a *Arrival) { got = *a })
	return got
}

func (t *notes) answered(n, status int) { t.change(n, func(a *Arrival) { a.Status = status }) }

func (t *notes) tooEarly(n int, by time.Duration) { t.change(n, func(a *Arrival) { a.Early = by }) }

func (t *notes) connected(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns = append(t.conns, c)
	c.n = len(t.conns)
}

func (t *notes) closeConns() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.conns {
		c.Close()
	}
}
