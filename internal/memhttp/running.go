package memhttp

import (
	"net"
	"net/http"
	"sync"
)

// A RunningServer is an http.Server that can be closed without leaving anything behind,
// which http.Server.Close alone does not promise.
type RunningServer struct {
	config     *http.Server
	closeConns func()

	mu      sync.Mutex
	closing bool           // no handler may begin
	active  sync.WaitGroup // Serve, every connection, and every handler
}

// Serve serves config, which it owns from then on, at l. closeConns closes the
// connections of l that the server does not know any more, as they were hijacked.
func Serve(config *http.Server, l net.Listener, closeConns func()) *RunningServer {
	r := &RunningServer{config: config, closeConns: closeConns}
	next := config.Handler
	if next == nil {
		next = http.DefaultServeMux
	}
	config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !r.beginHandler() {
			panic(http.ErrAbortHandler)
		}
		defer r.active.Done()
		next.ServeHTTP(w, req)
	})
	hook := config.ConnState
	config.ConnState = func(c net.Conn, state http.ConnState) {
		if r.countConn(state); hook != nil {
			hook(c, state)
		}
	}
	r.active.Go(func() { _ = config.Serve(l) })
	return r
}

// Close ends all connections and returns when no goroutine of the server runs any
// more. A handler that does not heed its context holds it up.
func (r *RunningServer) Close() {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	_ = r.config.Close()
	r.closeConns()
	r.active.Wait()
}

// beginHandler reports whether a handler may begin, which must then end with running.Done.
func (r *RunningServer) beginHandler() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closing {
		r.active.Add(1)
	}
	return !r.closing
}

// countConn counts connections that are served. They may last longer than their
// handlers: after some answers the server lingers for half a second.
func (r *RunningServer) countConn(state http.ConnState) {
	switch state {
	case http.StateNew:
		r.active.Add(1)
	case http.StateClosed, http.StateHijacked:
		r.active.Done()
	}
}
