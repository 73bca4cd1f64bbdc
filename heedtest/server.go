// Package heedtest is an HTTP server that limits, fails and misbehaves on
// command, for tests of programs that call others.
//
// It limits by any throttle.Limiter, plays a script of answers and faults, tells
// who came before Retry-After was over, and remembers all that arrived. It runs
// in memory, where a synctest bubble makes an hour of waiting take no time, or on
// a real socket.
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

// A Server answers as it is told. What a request meets, in this order:
//
//	arrive: noted, body read ─▶ early? ─▶ Limit ─▶ Answer ─▶ Edit ─▶ the client
//
// The zero Server answers everything with status 200. Set the fields, call Start
// or StartInMemory, and Close at the end. Fields must not change in between.
type Server struct {
	// Limit refuses what is too much, and says how the limits stand. Nil: no limits.
	Limit *throttlehttp.Middleware

	// Respond says what becomes of a request that Limit let through. It may be
	// called by several goroutines at once. Nil: the zero Answer for all. See Script.
	Respond func(Request) Response

	// EditHeader has the last word on the headers of an answer: to say nothing about
	// limits, to lie, to use words that no dialect of ours has. Date is set by then.
	// Nil: no changes.
	EditHeader func(http.Header)

	// Skew is how much the server's clock is ahead: it shows in Date.
	Skew time.Duration

	// Key says who sent a request. Whoever was told to come back later, by a
	// 429 or 503 with Retry-After, and comes sooner, is refused again: that is
	// noted as Request.EarlyBy. Nil: all requests are of one client.
	Key func(*http.Request) string

	// Penalty is how much more an early one has to wait each time. 0: nothing.
	Penalty time.Duration

	// Grace is for how long after a refusal was sent other requests still count
	// as on their way when it was. 0: for the same instant only, which is right
	// in memory; on a socket take some milliseconds.
	Grace time.Duration

	SkipBodies bool // answer without reading the bodies of requests
	HTTP2      bool // speak HTTP/2, without TLS; else HTTP/1.1

	// URL is where the server is, without a slash at the end. It is set by Start
	// and StartInMemory.
	URL string

	running    *memhttp.RunningServer
	dial       func(context.Context) (net.Conn, error)
	recorder   recorder
	earlyGuard earlyGuard
}

// Start starts s on a free port of the loopback address. It panics if there is none.
func (s *Server) Start() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic("heedtest: Server.Start: " + err.Error())
	}
	addr := l.Addr().String()
	s.start(l, "http://"+addr, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	})
}

// StartInMemory starts s without a socket, so that a synctest bubble can let time
// pass while requests wait. Only Transport and Client reach it.
func (s *Server) StartInMemory() {
	l := memhttp.NewListener()
	s.start(l, "http://heedtest.test", func(ctx context.Context) (net.Conn, error) { return l.Dial(ctx) })
}

func (s *Server) start(l net.Listener, url string, dial func(context.Context) (net.Conn, error)) {
	s.URL, s.dial = url, dial
	s.running = memhttp.Serve(&http.Server{
		Handler:     http.HandlerFunc(s.serve),
		Protocols:   s.protocols(),
		ConnContext: withConn,
		ErrorLog:    log.New(io.Discard, "", 0), // of connections that were broken on purpose
	}, &listener{Listener: l, recorder: &s.recorder, http2: s.HTTP2}, s.recorder.closeConns)
}

// Transport returns a new transport that reaches s, whatever host a request
// names. Its fields may be changed before the first request.
func (s *Server) Transport() *http.Transport {
	return &http.Transport{
		Protocols: s.protocols(),
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.dial(ctx)
		},
	}
}

// Client returns a client with a transport of its own, and nothing else.
func (s *Server) Client() *http.Client { return &http.Client{Transport: s.Transport()} }

// Close ends all connections and returns when no goroutine of the server runs any
// more.
func (s *Server) Close() {
	if s.running != nil { // nil: never started
		s.running.Close()
	}
}

func (s *Server) protocols() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(!s.HTTP2)
	p.SetUnencryptedHTTP2(s.HTTP2)
	return p
}

// serve takes a request through all stations.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	stream := takeStream(r)
	n := s.recorder.recordRequest(r, s.SkipBodies)
	key := ""
	if s.Key != nil {
		key = s.Key(r)
	}
	out := &responseWriter{ResponseWriter: w, server: s, key: key, n: n, stream: stream}
	if early, left := s.earlyGuard.check(key, time.Now(), s.Penalty); early > 0 {
		s.recorder.setEarly(n, early)
		rejectEarly(out, left)
		return
	}
	next := http.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { s.respond(out, r, n) }))
	if s.Limit != nil {
		next = s.Limit.Handler(next)
	}
	next.ServeHTTP(out, r)
}

func (s *Server) respond(w *responseWriter, r *http.Request, n int) {
	var a Response
	if s.Respond != nil {
		a = s.Respond(s.recorder.get(n))
	}
	a.write(w, r)
}

// A responseWriter notes what is answered, and gives Edit the last word.
type responseWriter struct {
	http.ResponseWriter
	server *Server
	key    string
	n      int
	stream uint32
	wrote  bool // the final status
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

// Unwrap lets http.ResponseController find the server's own writer.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *responseWriter) finish(status int) {
	s, h, now := w.server, w.Header(), time.Now()
	h.Set("Date", now.Add(s.Skew).UTC().Format(http.TimeFormat))
	if s.EditHeader != nil {
		s.EditHeader(h)
	}
	s.recorder.setStatus(w.n, status)
	s.earlyGuard.record(w.key, status, h, now, s.Skew, s.Grace)
}
