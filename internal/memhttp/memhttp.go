// Package memhttp is net/http over memory, for tests in synctest bubbles.
//
// A goroutine that waits for a socket keeps the fake time of a bubble from
// advancing, because the kernel might wake it at any moment. Here both ends of a
// connection live in the process, and whoever waits does so on a condition
// variable, which a bubble understands:
//
//	client ──Write──▶ [ up to 64 KiB ] ──Read──▶ server
//	       ◀──Read─── [ up to 64 KiB ] ◀──Write─
//
// Everything else is the real net/http: its Server, its Transport, HTTP/1.1 and
// HTTP/2, keep-alive, timeouts, hijacking.
package memhttp

import (
	"context"
	"net"
	"net/http"
)

// A Server is an http.Server that is reached through memory. Whatever host a
// request names, Transport and Client reach this server.
type Server struct {
	URL string // of the server, without a slash at the end

	config   *http.Server
	listener *Listener
	running  *RunningServer
}

// NewServer starts a server of HTTP/1.1.
func NewServer(h http.Handler) *Server { return Start(&http.Server{Handler: h}) }

// NewHTTP2Server starts a server of HTTP/2 without TLS.
func NewHTTP2Server(h http.Handler) *Server {
	return Start(&http.Server{Handler: h, Protocols: onlyHTTP2()})
}

// Start serves config, which it owns from then on. Its Addr and TLSConfig are
// not used. If its Protocols include unencrypted HTTP/2, Transport speaks that.
func Start(config *http.Server) *Server {
	l := NewListener()
	return &Server{URL: "http://mem.test", config: config, listener: l, running: Serve(config, l, l.closeConns)}
}

// Transport returns a new transport that reaches s. Its fields may be changed
// before the first request.
func (s *Server) Transport() *http.Transport {
	t := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return s.listener.Dial(ctx)
		},
	}
	if p := s.config.Protocols; p != nil && p.UnencryptedHTTP2() {
		t.Protocols = onlyHTTP2()
	}
	return t
}

// Client returns a client with a transport of its own.
func (s *Server) Client() *http.Client { return &http.Client{Transport: s.Transport()} }

// Close ends all connections, hijacked ones too, and returns when no goroutine of
// the server runs any more. The contexts of running requests are cancelled; a handler that
// does not heed its context holds Close up.
func (s *Server) Close() { s.running.Close() }

func onlyHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}
