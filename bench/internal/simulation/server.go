package simulation

import (
	"cmp"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"strconv"
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

	Call    int // the X-Request-Id, which a Load sets to the number of the call; negative if there is none
	Attempt int // 1 for the first request of Call

	// Random depends on the seed of Server.Vary, the call and the attempt alone, so that the
	// calls of different clients meet the same faults. It is nil without Vary.
	Random *rand.Rand
}

// A Response is what the server does with a request.
type Response struct {
	Status int // zero means 200
	Header http.Header
	Delay  time.Duration // between the arrival of the request and the response
	Drop   bool          // close the connection instead of responding
	Hang   bool          // do not respond until the client gives up

	// Body is the body of the response. With an empty Body that of Gateway is sent if the status
	// is an error, and a line of text otherwise. A nil Gateway means that of Server.Vary, if that was called.
	Body    string
	Gateway *Gateway

	Rejected bool // the request does not count as in flight
}

// A Server is an HTTP server in memory. It must be created, used and closed in the same
// virtual time.
type Server struct {
	URL string

	respond func(Request) Response
	http    *memhttp.Server
	bases   []*http.Transport
	seed    uint64
	gateway *Gateway // nil: Vary was not called

	mu       sync.Mutex
	received int
	inFlight int
	early    int
	calls    map[int]call
}

// A call is what a server knows of a call.
type call struct {
	attempts  int
	notBefore time.Time // the time that the Retry-After of its latest error states
}

// NewServer starts a server whose responses are determined by respond. The server calls
// respond with one request at a time, in the order of arrival.
func NewServer(respond func(Request) Response) *Server {
	s := &Server{respond: respond, calls: map[int]call{}}
	s.http = memhttp.Start(&http.Server{Handler: s, ErrorLog: log.New(io.Discard, "", 0)})
	s.URL = s.http.URL
	return s
}

// Vary makes s respond as irregularly as real servers do, before it is used. Requests are
// served in random order if they arrive within a millisecond, responses are up to MaxLate late, and
// errors have the bodies of a gateway. The seed decides it all.
func (s *Server) Vary(seed uint64) {
	s.seed = seed
	s.gateway = Gateways[rand.New(rand.NewPCG(seed, 2)).IntN(len(Gateways))]
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

// Early returns the number of requests that arrived more than a millisecond before the time
// that the Retry-After of the latest error of their call states.
func (s *Server) Early() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.early
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
	request := s.identify(r)
	if s.gateway != nil {
		request.Random = rand.New(rand.NewPCG(s.seed^uint64(request.Call)<<20, uint64(request.Attempt)))
		time.Sleep(time.Duration(request.Random.Int64N(int64(time.Millisecond))))
	}
	resp := s.arrive(request)
	time.Sleep(resp.Delay)
	if resp.Hang {
		<-r.Context().Done()
	}
	s.leave(request, resp)
	if resp.Drop || resp.Hang {
		panic(http.ErrAbortHandler)
	}
	s.write(w, resp)
}

// identify counts the attempts of a call.
func (s *Server) identify(r *http.Request) Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, err := strconv.Atoi(r.Header.Get("X-Request-Id"))
	if err != nil {
		return Request{HTTP: r, Call: -1, Attempt: s.received}
	}
	c := s.calls[id]
	c.attempts++
	s.calls[id] = c
	if time.Until(c.notBefore) > time.Millisecond {
		s.early++
	}
	return Request{HTTP: r, Call: id, Attempt: c.attempts}
}

func (s *Server) arrive(r Request) Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.received++
	s.inFlight++
	r.N, r.InFlight, r.At = s.received, s.inFlight, time.Now()
	resp := s.respond(r)
	if resp.Rejected {
		s.inFlight--
	}
	if r.Random != nil {
		resp.Delay += time.Duration(r.Random.Int64N(int64(MaxLate)))
	}
	return resp
}

func (s *Server) leave(r Request, resp Response) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !resp.Rejected {
		s.inFlight--
	}
	if c, ok := s.calls[r.Call]; ok && resp.Status >= 400 && !resp.Drop {
		const year = 365 * 24 * 60 * 60
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		c.notBefore = time.Now().Add(time.Duration(min(seconds, year)) * time.Second)
		s.calls[r.Call] = c
	}
}

func (s *Server) write(w http.ResponseWriter, resp Response) {
	body, gateway := resp.Body, cmp.Or(resp.Gateway, s.gateway)
	switch {
	case body == "" && resp.Status >= 400 && gateway != nil:
		var contentType string
		if body, contentType = gateway.Body(resp.Status); contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
	case body == "":
		body = "response\n"
	}
	for name, values := range resp.Header {
		w.Header()[name] = values
	}
	if resp.Status != 0 {
		w.WriteHeader(resp.Status)
	}
	_, _ = io.WriteString(w, body)
}
