package routes

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

// Latencies store the latest latencies of routes in fixed memory. Routes whose hashes select the same entry
// replace each other. Their methods may be called by several goroutines at the same time.
type Latencies struct {
	mu      sync.Mutex
	entries []latencyEntry // empty until the first call of Observe; guarded by mu
}

// A latencyEntry holds the latest latencies of one route.
type latencyEntry struct {
	route  uint64
	at     time.Time  // of the latest one
	recent [10]uint32 // in microseconds, a ring; zero: none
	next   int        // index in recent of the next one
}

// Observe records that the server took d, until now, to respond to a request of route.
func (l *Latencies) Observe(route uint64, d time.Duration, now time.Time) {
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

// Latency returns the 10th percentile of the last ten latencies of route: nine of ten responses take
// longer. It is zero if none was observed in the last minute.
func (l *Latencies) Latency(route uint64, now time.Time) time.Duration {
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
func (l *Latencies) find(route uint64, now time.Time) *latencyEntry {
	if l.entries == nil {
		return nil
	}
	if e := &l.entries[route%latencyEntries]; e.route == route && now.Sub(e.at) <= latencyMaxAge {
		return e
	}
	return nil
}

// HashOfHost returns a hash of the host and the route of req.
func HashOfHost(seed maphash.Seed, req *http.Request) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(req.URL.Host)
	var buf [Max]byte
	_, _ = h.Write(Append(buf[:0], req))
	return h.Sum64()
}
