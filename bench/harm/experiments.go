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

// A subject is a client that is looked at. Several experiments write to its result at
// the same time, each to fields of its own.
type subject struct {
	name   string
	result *result
}

var experiments = []func(subject){comesEarly, sendsBodies, doesTwice, leaves, sleeps}

// against returns a fresh client over a server that plays answers. Stop ends both.
func (s subject) against(answers ...heedtest.Answer) (c *http.Client, server *heedtest.Server, w *wire, stop func()) {
	server = &heedtest.Server{Answer: heedtest.Script(answers...), Grace: 5 * time.Millisecond}
	server.Start()
	base := server.Transport()
	w = &wire{base: base}
	c, err := clients.New(s.name, w, nil)
	if err != nil {
		panic(err) // measure has looked
	}
	return c, server, w, func() {
		base.CloseIdleConnections()
		server.Close()
	}
}

func status(code int, headers ...string) heedtest.Answer {
	a := heedtest.Answer{Status: code, Header: http.Header{}}
	for i := 0; i < len(headers); i += 2 {
		a.Header.Set(headers[i], headers[i+1])
	}
	return a
}

// comesEarly says in several ways when to come back.
func comesEarly(s subject) {
	later := time.Now().Add(3 * time.Second).UTC().Format(http.TimeFormat)
	var early, failed atomic.Int64
	var all sync.WaitGroup
	for _, a := range []heedtest.Answer{
		status(429, "Retry-After", "2"),
		status(503, "Retry-After", "2"),
		status(503, "Retry-After", "1.7"),
		status(503, "Retry-After", later),
		status(502, "Retry-After", "2"),
	} {
		all.Go(func() {
			c, server, _, stop := s.against(a)
			defer stop()
			if !good(c.Get(server.URL)) {
				failed.Add(1)
			}
			early.Add(int64(len(server.Early()) + soon(server, a)))
		})
	}
	all.Wait()
	s.result.Early, s.result.Failed = int(early.Load()), int(failed.Load())
}

// soon counts what came within two seconds after a 502 that asked for that: heedtest
// watches over 429 and 503 only.
func soon(server *heedtest.Server, a heedtest.Answer) (n int) {
	got := server.Arrivals()
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

// sendsBodies sends bodies that can be read once, and looks at what arrives.
func sendsBodies(s subject) {
	const text = "the whole of it"
	for _, method := range []string{"PUT", "POST"} {
		for _, first := range []heedtest.Answer{status(429, "Retry-After", "0"), status(503, "Retry-After", "0")} {
			c, server, _, stop := s.against(first)
			req, _ := http.NewRequest(method, server.URL, io.MultiReader(strings.NewReader(text)))
			good(c.Do(req))
			for _, a := range server.Arrivals() {
				if string(a.Body) != text {
					s.result.Bodies++
				}
			}
			stop()
		}
	}
}

// doesTwice lets POSTs fail in ways that do not tell whether they were done.
func doesTwice(s subject) {
	for _, first := range []heedtest.Answer{status(500), status(502), status(504), {Fault: heedtest.Drop}} {
		c, server, _, stop := s.against(first)
		good(c.Post(server.URL, "text/plain", strings.NewReader("an order")))
		s.result.Twice += len(server.Arrivals()) - 1
		stop()
	}
}

// leaves looks at which bodies are still open after calls that end in any way.
func leaves(s subject) {
	c, server, w, stop := s.against(status(503), status(500), status(429), status(503), status(503), status(503))
	defer stop()
	for i := range 6 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i+1)*300*time.Millisecond)
		req, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
		good(c.Do(req))
		cancel()
	}
	s.result.Leaked = int(w.opened.Load() - w.closed.Load())
}

// sleeps asks callers to wait for longer than they can: one has a deadline, one has
// none and is told to come back in an hour.
func sleeps(s subject) {
	for said, deadline := range map[string]time.Duration{"60": 2 * time.Second, "3600": 0} {
		c, server, _, stop := s.against(status(429, "Retry-After", said))
		ctx, cancel := context.WithCancel(context.Background())
		enough := time.AfterFunc(3*time.Second, cancel)
		if deadline > 0 {
			ctx, cancel = context.WithTimeout(ctx, deadline)
		}
		start := time.Now()
		req, _ := http.NewRequestWithContext(ctx, "GET", server.URL, nil)
		good(c.Do(req))
		if time.Since(start) > time.Second && len(server.Arrivals()) == 1 {
			s.result.Asleep++
		}
		enough.Stop()
		cancel()
		stop()
	}
}

// good reads an answer to its end, as a caller should.
func good(resp *http.Response, err error) bool {
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close()) == nil && resp.StatusCode == http.StatusOK
}

// A wire counts the bodies of answers.
type wire struct {
	base           http.RoundTripper
	opened, closed atomic.Int64
}

// RoundTrip implements http.RoundTripper.
func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.base.RoundTrip(r)
	if err == nil {
		w.opened.Add(1)
		resp.Body = &body{ReadCloser: resp.Body, wire: w}
	}
	return resp, err
}

type body struct {
	io.ReadCloser
	wire *wire
	once sync.Once
}

func (b *body) Close() error {
	b.once.Do(func() { b.wire.closed.Add(1) })
	return b.ReadCloser.Close()
}
