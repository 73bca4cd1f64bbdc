package memhttp

import (
	"net"
	"net/http"
	"sync"
)

// A RunningServer is an http.Server whose Close waits for all of its goroutines, which
// http.Server.Close does not.
type RunningServer struct {
	config     *http.Server
	closeConns func()

	mu      sync.Mutex
	closing bool           // no handler may start
	active  sync.WaitGroup // counts Serve, connections and handlers
}

// Serve serves config on l. The caller must not use config afterwards. closeConns closes
// the connections of l that the server does not track because they were hijacked.
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

// Close closes all connections and returns when all goroutines of the server have ended. It
// waits for handlers that ignore their contexts.
func (r *RunningServer) Close() {
	r.mu.Lock()
	r.closing = true
	r.mu.Unlock()
	_ = r.config.Close()
	r.closeConns()
	r.active.Wait()
}

// beginHandler reports whether a handler may start. It must then end with active.Done.
func (r *RunningServer) beginHandler() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closing {
		r.active.Add(1)
	}
	return !r.closing
}

// countConn counts connections that are served. They may outlive their handlers: after some
// responses the server waits for half a second before it closes the connection.
func (r *RunningServer) countConn(state http.ConnState) {
	switch state {
	case http.StateNew:
		r.active.Add(1)
	case http.StateClosed, http.StateHijacked:
		r.active.Done()
	}
}
