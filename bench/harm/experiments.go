package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/bench/clients"
	"github.com/heed-go/heed/heedtest"
)

// A trial is a client under test. Several experiments write to different fields of its
// result at the same time.
type trial struct {
	name   string
	result *result
}

var experiments = []func(trial){countEarlyRetries, countShortBodies, countDuplicates, countLeakedBodies, countUselessWaits}

// newClient returns a new client and a server that sends responses. stop closes both.
func (s trial) newClient(responses ...heedtest.Response) (c *http.Client, server *heedtest.Server, w *bodyCounter, stop func()) {
	server = &heedtest.Server{Respond: heedtest.Script(responses...), Grace: 5 * time.Millisecond}
	server.Start()
	base := server.Transport()
	w = &bodyCounter{base: base}
	c, err := clients.New(s.name, w, nil)
	if err != nil {
		panic(err) // measure has checked the name
	}
	return c, server, w, func() {
		base.CloseIdleConnections()
		server.Close()
	}
}

func status(code int, headers ...string) heedtest.Response {
	a := heedtest.Response{Status: code, Header: http.Header{}}
	for i := 0; i < len(headers); i += 2 {
		a.Header.Set(headers[i], headers[i+1])
	}
	return a
}

// countEarlyRetries states in several ways when to retry, and counts the requests that are
// too early.
func countEarlyRetries(s trial) {
	later := time.Now().Add(3 * time.Second).UTC().Format(http.TimeFormat)
	var early, failed atomic.Int64
	var all sync.WaitGroup
	for _, a := range []heedtest.Response{
		status(429, "Retry-After", "2"),
		status(503, "Retry-After", "2"),
		status(503, "Retry-After", "1.7"),
		status(503, "Retry-After", later),
		status(502, "Retry-After", "2"),
	} {
		all.Go(func() {
			c, server, _, stop := s.newClient(a)
			defer stop()
			if !succeeds(c.Get(server.URL)) {
				failed.Add(1)
			}
			early.Add(int64(len(server.EarlyRetries()) + earlyAfter502(server, a)))
		})
	}
	all.Wait()
	s.result.Early, s.result.Failed = int(early.Load()), int(failed.Load())
}

// earlyAfter502 counts the requests within two seconds after a 502 with Retry-After: 2,
// because heedtest checks only 429 and 503.
func earlyAfter502(server *heedtest.Server, a heedtest.Response) (n int) {
	got := server.Requests()
	if a.Status != http.StatusBadGateway {
		return 0
	}
	for _, b := range got[1:] {
		if b.At.Sub(got[0].At) < 2*time.Second {
			n++
		}
	}
	return n
}

// countShortBodies sends bodies that can be read only once, and counts the requests that
// arrive with an incomplete body.
func countShortBodies(s trial) {
	const text = "the whole of it"
	for _, method := range []string{"PUT", "POST"} {
		for _, first := range []heedtest.Response{status(429, "Retry-After", "0"), status(503, "Retry-After", "0")} {
			c, server, _, stop := s.newClient(first)
			req, _ := http.NewRequest(method, server.URL, io.MultiReader(strings.NewReader(text)))
			succeeds(c.Do(req))
			for _, a := range server.Requests() {
				if string(a.Body) != text {
					s.result.ShortBodies++
				}
			}
			stop()
		}
	}
}

// countDuplicates makes POSTs fail such that it is unknown whether they were processed, and
// counts the retries.
func countDuplicates(s trial) {
	for _, first := range []heedtest.Response{status(500), status(502), status(504), {Fault: heedtest.Drop}} {
		c, server, _, stop := s.newClient(first)
		succeeds(c.Post(server.URL, "text/plain", strings.NewReader("an order")))
		s.result.Duplicates += len(server.Requests()) - 1
		stop()
	}
}

// countLeakedBodies counts the bodies that are still open after calls with various
// outcomes.
func countLeakedBodies(s trial) {
	c, server, w, stop := s.newClient(status(503), status(500), status(429), status(503), status(503), status(503))
	defer stop()
	for i := range 6 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i+1)*300*time.Millisecond)
		req, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
		succeeds(c.Do(req))
		cancel()
	}
	s.result.Leaked = int(w.opened.Load() - w.closed.Load())
}

// countUselessWaits counts calls that wait longer than is useful: one has a deadline, one
// has none and gets a response with a Retry-After of one hour.
func countUselessWaits(s trial) {
	for retryAfter, deadline := range map[string]time.Duration{"60": 2 * time.Second, "3600": 0} {
		c, server, _, stop := s.newClient(status(429, "Retry-After", retryAfter))
		ctx, cancel := context.WithCancel(context.Background())
		enough := time.AfterFunc(3*time.Second, cancel)
		if deadline > 0 {
			ctx, cancel = context.WithTimeout(ctx, deadline)
		}
		start := time.Now()
		req, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
		succeeds(c.Do(req))
		if time.Since(start) > time.Second && len(server.Requests()) == 1 {
			s.result.UselessWaits++
		}
		enough.Stop()
		cancel()
		stop()
	}
}

// succeeds reads a response to its end, as a caller should.
func succeeds(resp *http.Response, err error) bool {
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close()) == nil && resp.StatusCode == http.StatusOK
}

// A bodyCounter counts the bodies of responses.
type bodyCounter struct {
	base           http.RoundTripper
	opened, closed atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (w *bodyCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.base.RoundTrip(r)
	if err == nil {
		w.opened.Add(1)
		resp.Body = &body{ReadCloser: resp.Body, counter: w}
	}
	return resp, err
}

type body struct {
	io.ReadCloser
	counter *bodyCounter
	once    sync.Once
}

func (b *body) Close() error {
	b.once.Do(func() { b.counter.closed.Add(1) })
	return b.ReadCloser.Close()
}
