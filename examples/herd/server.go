package main

import (
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A server serves a number of requests per second and rejects others with status 503 and
// Retry-After: 1. For a time after the start it is down and rejects all requests with a bare
// 503, as the load balancer in front of it does.
type server struct {
	start    time.Time
	downtime time.Duration
	limit    throttle.Limiter

	mu       sync.Mutex
	arrivals []arrival
}

// An arrival is a request that has reached the server.
type arrival struct {
	at     time.Duration // since the start
	served bool
}

// newServer returns a server that serves rate requests per second, of which burst may arrive
// at the same time.
func newServer(rate, burst int, downtime time.Duration) *server {
	limit := throttle.PerSecond(int64(rate)).WithBurst(int64(burst))
	return &server{start: time.Now(), downtime: downtime, limit: throttle.NewTokenBucket(limit)}
}

// respond returns the response to a request that arrives now.
func (s *server) respond() (status int, header http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	a, header := arrival{at: now.Sub(s.start)}, http.Header{}
	if a.at >= s.downtime {
		d, err := s.limit.Reserve(context.Background(), throttle.Claim{Now: now})
		a.served = err == nil && d.OK
		if !a.served {
			header.Set("Retry-After", "1")
		}
	}
	s.arrivals = append(s.arrivals, a)
	if a.served {
		return http.StatusOK, header
	}
	return http.StatusServiceUnavailable, header
}

// A network connects one client to the server. A message takes 5 to 25 ms.
type network struct {
	server *server

	mu     sync.Mutex
	random *rand.Rand
}

// RoundTrip implements http.RoundTripper.
func (n *network) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(n.latency())
	status, header := n.server.respond()
	time.Sleep(n.latency())
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(strings.NewReader("")), Request: req,
	}, nil
}

func (n *network) latency() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return 5*time.Millisecond + time.Duration(n.random.Int64N(int64(20*time.Millisecond)))
}
