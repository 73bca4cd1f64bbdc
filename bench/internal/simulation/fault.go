package simulation

import (
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"
)

// A Fault is a way in which a server fails some of its requests.
type Fault struct {
	Of    Kind    // what fails
	Share float64 // of the requests, at random, or of the backends, resources, tenants or routes; zero means all

	// A fault applies to the requests that arrive from From to To after its beginning, which
	// is the first request after the first After ones. Zero To means that it has no end. At most
	// Requests requests fail; zero means no maximum.
	After    int
	From, To time.Duration
	Requests int

	Above int // the fault applies only while more requests than that are in flight; zero means always

	Status     int
	Drop, Hang bool
	Header     http.Header
	Body       string  // zero means that of Gateway
	Gateway    string  // the name of one of Gateways; zero means that of the server
	RetryAfter []int   // seconds, one of which is stated, at random; none means no header
	StateEnd   bool    // Retry-After states the time until To, rounded up
	Delay      Latency // of the response; the zero Latency means that of other responses
	Rejected   bool    // the requests do not count as in flight
}

// A Kind is what a Fault concerns.
type Kind uint8

// The kinds of what fails.
const (
	Requests Kind = iota
	Backends
	Resources
	Tenants
	Routes
)

// An activeFault is a Fault during a run.
type activeFault struct {
	Fault
	gateway *Gateway // nil: that of the server
	bad     []bool   // which of the backends, resources, tenants or routes fail
	begin   time.Time
	failed  int
}

// activate returns f for a server whose backends, resources, tenants and routes are counts, by Kind. random decides
// which of them fail.
func (f Fault) activate(counts [Routes + 1]int, random *rand.Rand) *activeFault {
	a := &activeFault{Fault: f}
	if f.Share == 0 {
		a.Share = 1
	}
	if f.Gateway != "" {
		a.gateway = gatewayNamed(f.Gateway)
	}
	if f.Of != Requests {
		n := max(counts[f.Of], 1)
		a.bad = make([]bool, n)
		for _, i := range random.Perm(n)[:int(math.Round(a.Share*float64(n)))] {
			a.bad[i] = true
		}
	}
	return a
}

// applies reports whether a request fails. which identifies, by Kind, what it concerns.
func (f *activeFault) applies(r Request, which [Routes + 1]int) bool {
	chosen := r.Random.Float64() < f.Share // a value is taken from Random in any case
	if f.Of != Requests {
		chosen = f.bad[which[f.Of]%len(f.bad)]
	}
	if r.N <= f.After {
		return false
	}
	if f.begin.IsZero() {
		f.begin = r.At
	}
	since := r.At.Sub(f.begin)
	inTime := since >= f.From && (f.To == 0 || since < f.To)
	if !chosen || !inTime || r.InFlight <= f.Above || f.Requests > 0 && f.failed >= f.Requests {
		return false
	}
	f.failed++
	return true
}

// response returns the response to a request that fails, where others take delay.
func (f *activeFault) response(r Request, delay time.Duration) Response {
	if f.Delay != (Latency{}) {
		delay = f.Delay.draw(r.Random)
	}
	resp := Response{Status: f.Status, Drop: f.Drop, Hang: f.Hang, Header: f.Header.Clone(), Delay: delay, Body: f.Body, Gateway: f.gateway, Rejected: f.Rejected}
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	switch {
	case f.StateEnd:
		left := f.begin.Add(f.To).Sub(r.At.Add(delay))
		resp.Header.Set("Retry-After", strconv.Itoa(max(int(math.Ceil(left.Seconds())), 1)))
	case len(f.RetryAfter) > 0:
		resp.Header.Set("Retry-After", strconv.Itoa(f.RetryAfter[r.Random.IntN(len(f.RetryAfter))]))
	}
	return resp
}
