// Package scenario runs the job of an example against a local server, with heed and with the
// client that the SDK, or net/http, has by default, and counts what the server received.
package scenario

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/heedtest"
)

// A Scenario is a job and the API that it calls.
type Scenario struct {
	// Name is the name of the example.
	Name string

	// Calls is the number of calls of the job, without requests that only prepare it.
	Calls int

	// API returns a new API that counts what it receives in c.
	API func(c *Counts) func(heedtest.Request) heedtest.Response

	// Default runs the job with the client as the SDK or net/http ships it, and Heed with
	// that of the example. Both send their requests through base, which connects to the API
	// whatever the host, and return the number of calls that failed.
	Default, Heed Job
}

// date is when all jobs begin.
var date = time.Date(2026, 11, 22, 9, 0, 0, 0, time.UTC)

// A Job makes calls through base and returns the number of those that failed.
type Job func(ctx context.Context, base http.RoundTripper) (failed int)

// A Result is the outcome of a job with one client.
type Result struct {
	Example    string  `json:"example"`
	Client     string  `json:"client"` // "default" or "heed"
	Calls      int     `json:"calls"`
	Sent       int     `json:"sent"`       // requests that the server received
	Throttled  int     `json:"throttled"`  // requests that it rejected because of a limit
	Duplicated int     `json:"duplicated"` // times that it did what it had already done for the same call
	Failed     int     `json:"failed"`     // calls that failed
	MostSends  int     `json:"most_sends"` // requests of the call with the most of them
	Elapsed    float64 `json:"elapsed_s"`

	// OldestSignature is the age of the oldest signature that the server received, in
	// seconds. Nil means that requests are not signed.
	OldestSignature *float64 `json:"oldest_signature_s,omitempty"`
}

// Run runs the job with both clients, each with a server of its own, in virtual time. If
// maxInFlight is positive, the default client has at most so many requests in flight.
func (s Scenario) Run(t *testing.T, maxInFlight int) (plain, heed Result) {
	byDefault := s.Default
	if maxInFlight > 0 {
		byDefault = func(ctx context.Context, base http.RoundTripper) int {
			return s.Default(ctx, bounded{base, make(chan struct{}, maxInFlight)})
		}
	}
	return s.run(t, "default", byDefault), s.run(t, "heed", s.Heed)
}

func (s Scenario) run(t *testing.T, client string, job Job) (r Result) {
	t.Run(s.Name+"/"+client, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r = s.Measure(t.Context(), job)
			r.Example, r.Client = s.Name, client
		})
	})
	return r
}

// Measure runs one job with a new server. It must be called in a bubble of testing/synctest.
func (s Scenario) Measure(ctx context.Context, job Job) Result {
	time.Sleep(time.Until(date)) // bubbles begin in the year 2000, where Unix times have a digit less
	counts := new(Counts)
	// The API decides about all requests: the check of heedtest for early retries is of no use
	// if each request has another key.
	var requests atomic.Int64
	anotherKey := func(*http.Request) string { return strconv.FormatInt(requests.Add(1), 10) }
	server := &heedtest.Server{Respond: s.API(counts), Key: anotherKey}
	server.StartInMemory()
	defer server.Close()
	base := Base(server)
	defer base.CloseIdleConnections()
	start := time.Now()
	failed := job(ctx, base)
	r := counts.result()
	r.Calls, r.Failed, r.Elapsed = s.Calls, failed, time.Since(start).Seconds()
	return r
}

// A BaseTransport connects to a server for tests, whatever host a request names, and sends
// requests for https URLs without TLS. So programs use the URLs of the real API.
type BaseTransport struct{ *http.Transport }

// Base returns a BaseTransport for server, which must have been started.
func Base(server *heedtest.Server) BaseTransport {
	t := server.Transport()
	t.MaxIdleConnsPerHost = 1000
	return BaseTransport{t}
}

// RoundTrip implements http.RoundTripper.
func (b BaseTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	plain := req.Clone(req.Context())
	plain.URL.Scheme = "http"
	return b.Transport.RoundTrip(plain)
}

// bounded sends as many requests at the same time as inFlight has capacity.
type bounded struct {
	base     http.RoundTripper
	inFlight chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case b.inFlight <- struct{}{}:
	case <-req.Context().Done():
		return nil, req.Context().Err()
	}
	defer func() { <-b.inFlight }()
	return b.base.RoundTrip(req)
}
