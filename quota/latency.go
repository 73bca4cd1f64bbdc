package quota

import (
	"hash/maphash"
	"net/http"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

const (
	latencyEntries = 256         // routes whose latencies are stored, of all hosts
	latencyMaxAge  = time.Minute // after the latest one, the latencies of a route are dropped
)

// latencies stores the latest latencies of routes in fixed memory. Routes whose hashes select the
// same entry replace each other.
type latencies struct {
	mu      sync.Mutex
	entries []latencyEntry // empty until the first call of ObserveLatency; guarded by mu
}

// A latencyEntry holds the latest latencies of one route.
type latencyEntry struct {
	route  uint64
	at     time.Time  // of the latest one
	recent [10]uint32 // in microseconds, a ring; zero: none
	next   int        // index in recent of the next one
}

// ObserveLatency records that the server accepted req and took d, until now, to respond.
func (t *Tracker) ObserveLatency(req *http.Request, d time.Duration, now time.Time) {
	t.once.Do(t.init)
	route := t.latencyRoute(req)
	l := &t.latencies
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entries == nil {
		l.entries = make([]latencyEntry, latencyEntries)
	}
	e := l.find(route, now)
	if e == nil {
		e = &l.entries[route%latencyEntries]
		*e = latencyEntry{route: route}
	}
	e.recent[e.next] = uint32(min(max(d/time.Microsecond, 1), 1<<31)) //nolint:gosec // bounded
	e.next = (e.next + 1) % len(e.recent)
	e.at = ticks.Later(e.at, now)
}

// Latency returns the 10th percentile of the last ten latencies on the route of req: nine of
// ten responses take longer. It is zero if none was observed in the last minute.
func (t *Tracker) Latency(req *http.Request, now time.Time) time.Duration {
	t.once.Do(t.init)
	route := t.latencyRoute(req)
	l := &t.latencies
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.find(route, now)
	if e == nil {
		return 0
	}
	lowest := uint32(0) // of ten values, the lowest is the 10th percentile by nearest rank
	for _, d := range e.recent {
		if d > 0 && (lowest == 0 || d < lowest) {
			lowest = d
		}
	}
	return time.Duration(lowest) * time.Microsecond
}

// find returns the entry of route, or nil if there is none or it is too old. The caller holds l.mu.
func (l *latencies) find(route uint64, now time.Time) *latencyEntry {
	if l.entries == nil {
		return nil
	}
	if e := &l.entries[route%latencyEntries]; e.route == route && now.Sub(e.at) <= latencyMaxAge {
		return e
	}
	return nil
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
