package quota

import (
	"hash/maphash"
	"net/http"
	"sync"
	"time"
)

// latencies holds how long servers took to respond, per route, in fixed memory: routes
// that share a slot replace each other.
type latencies struct {
	mu    sync.Mutex
	slots []latency // allocated with the first measurement
}

// A latency is what is known of one route.
type latency struct {
	route  uint64
	at     time.Time  // of the latest measurement
	recent [10]uint32 // in microseconds; zero: none
	next   int
}

const (
	latencySlots  = 256
	latencyMaxAge = time.Minute
)

// ObserveLatency records that the server accepted req and took d, until now, to respond.
func (t *Tracker) ObserveLatency(req *http.Request, d time.Duration, now time.Time) {
	t.once.Do(t.init)
	route := t.latencyRoute(req)
	l := &t.latencies
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slots == nil {
		l.slots = make([]latency, latencySlots)
	}
	s := &l.slots[route%latencySlots]
	if s.route != route || now.Sub(s.at) > latencyMaxAge {
		*s = latency{route: route}
	}
	s.recent[s.next] = uint32(min(max(d/time.Microsecond, 1), 1<<31)) //nolint:gosec // bounded
	s.next = (s.next + 1) % len(s.recent)
	s.at = later(s.at, now)
}

// Latency returns the 10th percentile of the last ten latencies on the route of req: nine of
// ten responses take longer. It is zero if none was observed in the last minute.
func (t *Tracker) Latency(req *http.Request, now time.Time) time.Duration {
	t.once.Do(t.init)
	route := t.latencyRoute(req)
	l := &t.latencies
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.slots == nil {
		return 0
	}
	s := &l.slots[route%latencySlots]
	if s.route != route || now.Sub(s.at) > latencyMaxAge {
		return 0
	}
	least := uint32(0)
	for _, d := range s.recent { // the smallest of ten is their 10th percentile by nearest rank
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return time.Duration(least) * time.Microsecond
}

// latencyRoute returns a hash of the host and the route of req.
func (t *Tracker) latencyRoute(req *http.Request) uint64 {
	var h maphash.Hash
	h.SetSeed(t.seed)
	_, _ = h.WriteString(req.URL.Host)
	var buf [maxRoute]byte
	_, _ = h.Write(appendRoute(buf[:0], req))
	return h.Sum64()
}
