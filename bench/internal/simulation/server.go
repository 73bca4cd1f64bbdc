package simulation

import (
	"io"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/memhttp"
)

// A Request describes a request at the moment of its arrival.
type Request struct {
	N        int // 1 for the first request that the server received
	InFlight int // requests that the server is processing, including this one
	At       time.Time
	HTTP     *http.Request
}

// A Response is what the server does with a request.
type Response struct {
	Status int // zero means 200
	Header http.Header
	Delay  time.Duration // between the arrival of the request and the response
	Drop   bool          // close the connection instead of responding
	Hang   bool          // do not respond until the client gives up
}

// A Server is an HTTP server in memory. It must be created, used and closed in the same
// virtual time.
type Server struct {
	URL string

	respond func(Request) Response
	http    *memhttp.Server
	bases   []*http.Transport

	mu       sync.Mutex
	received int
	inFlight int
}

// NewServer starts a server whose responses are determined by respond. The server calls
// respond with one request at a time, in the order of arrival.
func NewServer(respond func(Request) Response) *Server {
	s := &Server{respond: respond}
	s.http = memhttp.Start(&http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0)})
	s.URL = s.http.URL
	return s
}

// Transport returns a transport to s that keeps as many idle connections as there are
// callers. With zero callers each request has a connection of its own: then net/http
// does not repeat requests whose connection was closed without a response.
func (s *Server) Transport(callers int) *http.Transport {
	base := s.http.Transport()
	base.MaxIdleConnsPerHost = callers
	base.DisableKeepAlives = callers == 0
	s.bases = append(s.bases, base)
	return base
}

// Do calls f while the server does not call respond, so that both can use the same data.
func (s *Server) Do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// Received returns the number of requests that have arrived.
func (s *Server) Received() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.received
}

// Close closes all connections.
func (s *Server) Close() {
	for _, base := range s.bases {
		base.CloseIdleConnections()
	}
	s.http.Close()
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resp := s.arrive(r)
	time.Sleep(resp.Delay)
	if resp.Hang {
		<-r.Context().Done()
	}
	s.leave()
	if resp.Drop || resp.Hang {
		panic(http.ErrAbortHandler)
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	if resp.Status != 0 {
		w.WriteHeader(resp.Status)
	}
	_, _ = io.WriteString(w, "response\n")
}

func (s *Server) arrive(r *http.Request) Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received++
	s.inFlight++
	return s.respond(Request{N: s.received, InFlight: s.inFlight, At: time.Now(), HTTP: r})
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight--
}
