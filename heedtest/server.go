// Package heedtest provides an HTTP server that limits, fails and misbehaves in controlled
// ways, and a report card for HTTP clients.
//
// [Check] tests any http.RoundTripper for the usual faults of clients with retries: early
// retries, incomplete bodies, duplicate POSTs, retries of all callers at the same moment,
// leaks, useless waits and others. docs/testing.md lists the checks.
//
// [Server] is for tests of other behaviour. It limits requests by any throttle.Limiter,
// responds with a script of responses and faults, detects requests that arrive before
// Retry-After has elapsed, and records all requests. It runs in memory, where a
// testing/synctest bubble makes an hour of waiting take no time, or on a socket.
//
//	server := &heedtest.Server{Respond: heedtest.Script(
//		heedtest.Response{Status: 503, Header: http.Header{"Retry-After": {"60"}}},
//		heedtest.Response{Fault: heedtest.CutBody},
//	)}
//	server.Start() // or StartInMemory
//	defer server.Close()
//	resp, err := server.Client().Get(server.URL)
package heedtest

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttlehttp"
)

// A Server is an HTTP server for tests. It processes each request in this order:
//
//	record, read body ─▶ early? ─▶ Limit ─▶ Respond ─▶ EditHeader ─▶ client
//
// The zero Server responds to every request with status 200. Set the fields, call Start or
// StartInMemory, and call Close at the end. The fields must not be changed in between.
type Server struct {
	// Limit rejects requests that exceed its limits, and reports the state of the limits in
	// the headers of responses. Nil means no limits. A Response as its OnReject replaces the
	// responses to rejected requests.
	Limit *throttlehttp.Middleware

	// Respond returns the response to a request that Limit admitted. It may be called by
	// several goroutines at the same time. Nil means the zero Response for all requests.
	// See Script.
	Respond func(Request) Response

	// EditHeader changes the header of a response before it is sent: to omit the state of the
	// limits, to report a wrong one, or to use headers that headers.Dialect does not support.
	// Date is already set. Nil means no changes.
	EditHeader func(http.Header)

	// Skew is how far the server's clock, which sets Date, is ahead of the real clock. It may
	// be negative.
	Skew time.Duration

	// Key returns the client of a request. A request of a client that was sent a 429 or 503
	// with Retry-After, and that has not waited for that long, is rejected and recorded with
	// Request.EarlyBy. Nil means that all requests are from one client.
	Key func(*http.Request) string

	// Penalty is added to the remaining wait of a client with each early request. Zero means
	// no penalty.
	Penalty time.Duration

	// Grace is the time after a rejection during which other requests of the client do not
	// count as early, because they may have been sent before the client received the
	// rejection. Zero means that only requests at the same instant are not early, which is
	// correct in memory; a socket needs some milliseconds.
	Grace time.Duration

	// SkipBodies makes the server respond without reading the bodies of requests.
	SkipBodies bool

	// HTTP2 selects HTTP/2. Otherwise the server uses HTTP/1.1.
	HTTP2 bool

	// TLS selects TLS, with a certificate for every host name and for the loopback addresses.
	// Clients trust it only with the TLSClientConfig of Transport. False means no TLS.
	TLS bool

	// URL is the base URL of the server, without a trailing slash. It is set by Start and
	// StartInMemory.
	URL string

	running    *memhttp.RunningServer
	dial       func(context.Context) (net.Conn, error)
	authority  *authority // nil without TLS
	recorder   recorder
	earlyGuard earlyGuard
}

// Start starts s on a free port of the loopback address. It panics if it cannot listen.
func (s *Server) Start() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic("heedtest: Server.Start: " + err.Error())
	}
	addr := l.Addr().String()
	s.start(l, addr, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	})
}

// StartInMemory starts s without a socket, so that time can pass in a testing/synctest bubble
// while requests wait. Only Transport and Client can reach it.
func (s *Server) StartInMemory() {
	l := memhttp.NewListener()
	s.start(l, "heedtest.test", func(ctx context.Context) (net.Conn, error) { return l.Dial(ctx) })
}

func (s *Server) start(l net.Listener, host string, dial func(context.Context) (net.Conn, error)) {
	s.URL, s.dial = "http://"+host, dial
	recording := &listener{Listener: l, recorder: &s.recorder, http2: s.HTTP2}
	if s.TLS {
		s.URL = "https://" + host
		var err error
		if s.authority, err = newAuthority(); err != nil {
			panic("heedtest: Server.Start: " + err.Error())
		}
		recording.tls = s.authority.server(s.alpn())
	}
	s.running = memhttp.Serve(&http.Server{
		Handler:     http.HandlerFunc(s.serve),
		Protocols:   s.protocols(false), // TLS is added beneath the server, below the faults of HTTP/2
		ConnContext: withConn,
		ErrorLog:    log.New(io.Discard, "", 0), // discards errors of connections that faults have broken
	}, recording, s.recorder.closeConns)
}

// Transport returns a new transport that connects to s, whatever host a request names. Its
// fields may be changed before the first request.
func (s *Server) Transport() *http.Transport {
	t := &http.Transport{
		Protocols: s.protocols(s.TLS),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.dial(ctx)
		},
	}
	if s.authority != nil {
		t.TLSClientConfig = s.authority.client()
	}
	return t
}

// Client returns an http.Client with a new Transport and no other settings.
func (s *Server) Client() *http.Client { return &http.Client{Transport: s.Transport()} }

// Close closes all connections and returns when all goroutines of the server have ended.
func (s *Server) Close() {
	if s.running != nil { // nil if the server has not been started
		s.running.Close()
	}
}

// protocols returns the protocol of s to a client or server of net/http that does, or does not,
// encrypt it itself.
func (s *Server) protocols(encrypts bool) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(!s.HTTP2)
	p.SetHTTP2(s.HTTP2 && encrypts)
	p.SetUnencryptedHTTP2(s.HTTP2 && !encrypts)
	return p
}

// alpn returns the protocol of s as TLS names it.
func (s *Server) alpn() string {
	if s.HTTP2 {
		return "h2"
	}
	return "http/1.1"
}

// serve records a request, rejects it if it is early, and passes it to Limit and respond.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	stream := takeStream(r)
	r.TLS = connOf(r).tlsState()
	n := s.recorder.recordRequest(r, s.SkipBodies)
	key := ""
	if s.Key != nil {
		key = s.Key(r)
	}
	out := &responseWriter{ResponseWriter: w, server: s, key: key, n: n, stream: stream}
	if early, left := s.earlyGuard.check(key, time.Now(), s.Penalty); early > 0 {
		s.recorder.setEarly(n, early)
		out.early = true
		rejectEarly(out, left)
		return
	}
	next := http.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { s.respond(out, r, n) }))
	if s.Limit != nil {
		next = s.Limit.Handler(next)
	}
	next.ServeHTTP(out, r.WithContext(context.WithValue(r.Context(), writerKey{}, out)))
}

func (s *Server) respond(w *responseWriter, r *http.Request, n int) {
	var a Response
	if s.Respond != nil {
		a = s.Respond(s.recorder.get(n))
	}
	a.write(w, w, r)
}

// A responseWriter records the status of a response and calls EditHeader.
type responseWriter struct {
	http.ResponseWriter
	server *Server
	key    string
	n      int
	stream uint32
	wrote  bool // whether the final status has been written
	early  bool // the request is rejected because it is early, which extends no wait
}

// WriteHeader implements http.ResponseWriter.
func (w *responseWriter) WriteHeader(status int) {
	if status >= http.StatusOK && !w.wrote {
		w.wrote = true
		w.finish(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *responseWriter) Write(p []byte) (int, error) {
	if !w.wrote {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap returns the server's own writer for http.ResponseController.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *responseWriter) finish(status int) {
	s, h, now := w.server, w.Header(), time.Now()
	h.Set("Date", now.Add(s.Skew).UTC().Format(http.TimeFormat))
	if s.EditHeader != nil {
		s.EditHeader(h)
	}
	s.recorder.setStatus(w.n, status)
	if !w.early {
		s.earlyGuard.record(w.key, status, h, now, s.Skew, s.Grace)
	}
}
