package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
)

// A server does what the body of a POST says, and counts it. It remembers the
// Idempotency-Key of a request, and does nothing for a request with a known one. Some
// requests fail: before they are done, or after.
type server struct {
	*httptest.Server
	faults float64       // share of the requests that fail
	delay  time.Duration // maximum time before and after a request is done, so that processes are killed meanwhile

	mu       sync.Mutex
	random   *rand.Rand
	seen     map[string]bool // Idempotency-Keys
	effects  map[string]int  // how often a body was done
	received map[string]bool // values of X-Number
	unkeyed  map[string]int  // how often a body that was not rejected came without an Idempotency-Key
	requests int             // including rejected ones
	admitted int
	failed   int
	changed  chan struct{} // has a value when effects have changed
}

// newServer starts a server that allows rate requests a second, and as many in a burst, and
// states this in its headers. A request takes up to delay before and after it is done.
func newServer(rate int64, faults float64, delay time.Duration, random *rand.Rand) *server {
	s := &server{faults: faults, delay: delay, random: random, seen: map[string]bool{}, effects: map[string]int{}, received: map[string]bool{}, unkeyed: map[string]int{}, changed: make(chan struct{}, 1)}
	limit := &throttlehttp.Middleware{Limiter: throttle.NewTokenBucket(throttle.PerSecond(rate))}
	next := limit.Handler(http.HandlerFunc(s.serve))
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.requests++
		s.received[r.Header.Get("X-Number")] = true // also if the client has gone meanwhile
		s.mu.Unlock()
		next.ServeHTTP(w, r)
	}))
	return s
}

// The ways in which a request fails.
const (
	noFault     = iota
	errorBefore     // status 500, not done
	closeBefore     // no response, not done
	errorAfter      // status 502, done
	closeAfter      // no response, done
	unavailable     // status 503, not done
	numFaults   = 6 // including noFault
)

func (s *server) serve(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client was killed
	}
	s.sleep()
	fault := s.do(strings.TrimSpace(string(text)), r.Header.Get("Idempotency-Key"))
	s.sleep()
	switch fault {
	case errorBefore:
		w.WriteHeader(http.StatusInternalServerError)
	case errorAfter:
		w.WriteHeader(http.StatusBadGateway)
	case unavailable:
		w.WriteHeader(http.StatusServiceUnavailable)
	case closeBefore, closeAfter:
		panic(http.ErrAbortHandler)
	default:
		fmt.Fprintln(w, "done")
	}
}

// sleep waits for a random part of delay.
func (s *server) sleep() {
	if s.delay > 0 {
		s.mu.Lock()
		d := time.Duration(s.random.Int64N(int64(s.delay)))
		s.mu.Unlock()
		time.Sleep(d)
	}
}

// do does what body says, and returns how the request fails.
func (s *server) do(body, key string) (fault int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.admitted++
	if key == "" {
		s.unkeyed[body]++
	}
	if s.random.Float64() < s.faults {
		s.failed++
		fault = 1 + s.random.IntN(numFaults-1)
	}
	if fault == errorBefore || fault == closeBefore || fault == unavailable || key != "" && s.seen[key] {
		return fault
	}
	if key != "" {
		s.seen[key] = true
	}
	s.effects[body]++
	select {
	case s.changed <- struct{}{}:
	default:
	}
	return fault
}

// done returns the number of bodies that were done.
func (s *server) done() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.effects)
}
