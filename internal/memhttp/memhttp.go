// Package memhttp provides net/http over connections in memory, for tests in synctest
// bubbles.
//
// A goroutine that waits for a socket prevents the fake time of a bubble from advancing,
// because the kernel might wake it at any moment. In this package both ends of a connection
// are in the process, and goroutines wait on a condition variable, which synctest supports:
//
//	client ──Write──▶ [ up to 64 KiB ] ──Read──▶ server
//	       ◀──Read─── [ up to 64 KiB ] ◀──Write─
//
// Everything else is the real net/http: its Server, its Transport, HTTP/1.1 and HTTP/2,
// keep-alive, timeouts and hijacking.
package memhttp

import (
	"context"
	"net"
	"net/http"
)

// A Server is an http.Server that is reached through memory. Transport and Client connect
// all requests to this server, regardless of their hosts.
type Server struct {
	// URL is the URL of the server, without a slash at the end.
	URL string

	config   *http.Server
	listener *Listener
	running  *RunningServer
}

// NewServer starts a server for HTTP/1.1.
func NewServer(h http.Handler) *Server { return Start(&http.Server{Handler: h}) }

// NewHTTP2Server starts a server for HTTP/2 without TLS.
func NewHTTP2Server(h http.Handler) *Server {
	return Start(&http.Server{Handler: h, Protocols: onlyHTTP2()})
}

// Start starts a server with config, which must not be used by the caller afterwards. Addr
// and TLSConfig are ignored. If Protocols includes unencrypted HTTP/2, Transport uses it.
func Start(config *http.Server) *Server {
	l := NewListener()
	return &Server{URL: "http://mem.test", config: config, listener: l, running: Serve(config, l, l.closeConns)}
}

// Transport returns a new transport whose requests reach s. Its fields may be changed
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

// Client returns a client with a new transport.
func (s *Server) Client() *http.Client { return &http.Client{Transport: s.Transport()} }

// Close closes all connections, including hijacked ones, and returns when all goroutines of
// the server have ended. It cancels the contexts of running requests and waits for their
// handlers.
func (s *Server) Close() { s.running.Close() }

func onlyHTTP2() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}
