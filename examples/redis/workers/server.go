package main

import (
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// An api serves all requests, but pauses for a second after 15 requests.
type api struct {
	served, rejected atomic.Int64

	mu    sync.Mutex
	until time.Time
}

func (a *api) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.served.Load() == 15 && a.until.IsZero() {
		a.until = time.Now().Add(time.Second)
	}
	if time.Now().Before(a.until) {
		a.rejected.Add(1)
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	a.served.Add(1)
}
