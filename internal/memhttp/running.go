package memhttp

import (
	"net"
	"net/http"
	"sync"
)

// A Running is an http.Server that can be closed without leaving anything behind,
// which http.Server.Close alone does not promise.
type Running struct {
	config     *http.Server
	closeConns func()

	mu      sync.Mutex
	closing bool           // no handler may begin
	running sync.WaitGroup // Serve, every connection, and every handler
}

// Serve serves config, which it owns from then on, at l. closeConns closes the
// connections of l that the server does not know any more, as they were hijacked.
func Serve(config *http.Server, l net.Listener, closeConns func()) *Running {
	r := &Running{config: config, closeConns: closeConns}
	next := config.Handler
	if next == nil {
		next = http.DefaultServeMux
	}
	config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !r.enter() {
			panic(http.ErrAbortHandler)
		}
		defer r.running.Done()
		next.ServeHTTP(w, req)
	})
	hook := config.ConnState
	config.ConnState = func(c net.Conn, state http.ConnState) {
		if r.count(state); hook != nil {
			hook(c, state)
		}
	}
	r.running.Go(func() { _ = config.Serve(l) })
	return r
}

// Close ends all connections and returns when no goroutine of the server runs any
// more. A handler that does not heed its context holds it up.
func (r *Running) Close() {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	_ = r.config.Close()
	r.closeConns()
	r.running.Wait()
}

// enter reports whether a handler may begin, which must then end with running.Done.
func (r *Running) enter() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closing {
		r.running.Add(1)
	}
	return !r.closing
}

// count counts connections that are served. They may last longer than their
// handlers: after some answers the server lingers for half a second.
func (r *Running) count(state http.ConnState) {
	switch state {
	case http.StateNew:
		r.running.Add(1)
	case http.StateClosed, http.StateHijacked:
		r.running.Done()
	}
}
