package routes

import (
	"hash/maphash"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

const (
	latencySets   = 128         // of two routes or hosts whose latencies are stored
	latencyMaxAge = time.Minute // after the latest one, the latencies of a route are dropped
	latencyCount  = 24          // latest latencies of a route that are stored
)

// Latencies store the latest latencies of routes, and of hosts for the routes that are not known, in fixed memory. Of three whose
// hashes select the same set of entries, the latest replaces the oldest. Their methods may be called by several goroutines at the
// same time.
//
// The high latency of a route is the longest of its latest n. If latencies are independent and have the same
// distribution, whatever it is, the next one is longer with a probability of 1/(n+1), because each of the n+1
// is as likely to be the longest (Wilks, "Determination of sample sizes for setting tolerance limits", 1941).
//
// Of a request that the deadline of its caller ended without a response, only a lower bound of the latency is
// known. Without these requests, the high latency would be that of the requests that had enough time; with the
// bound, it would hardly exceed the time that requests have, and remain too short. So such a request counts as
// if it had waited a quarter less and taken that time, too: with each one, the time that the next ones keep
// for their responses approaches the time that their callers give.
type Latencies struct {
	mu   sync.Mutex
	sets [][2]latencyEntry // empty until the first latency is recorded; guarded by mu
}

// A latencyEntry holds the latest latencies of one route or host.
type latencyEntry struct {
	hash          uint64
	at            time.Time // of the latest one
	latest        [latencyCount]latency
	count, next   uint8 // used length of latest, and index of the next one
	typical, high latency
}

// Observe records that the server took d, until now, to respond to a request of route r.
func (l *Latencies) Observe(r HostRoute, d time.Duration, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.add(r, newLatency(d, false), now)
}

// ObserveExpired records that the deadline of its caller has ended a request of route r d after it was sent,
// without a response, after it had waited. If d is less than the typical latency, that shows nothing.
func (l *Latencies) ObserveExpired(r HostRoute, d, waited time.Duration, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.find(r, now); e == nil || d >= e.typical.duration() {
		l.add(r, newLatency(d+waited/4, true), now)
	}
}

// Latency returns the typical and the high latency of route r: the lower quartile of the responses among its
// latest 24 requests, and the longest of all. If it had no request in the last minute, they are those of its host:
// a client that sends few requests to each of many routes would know none. A zero is not known: there was no response, or no request.
func (l *Latencies) Latency(r HostRoute, now time.Time) (typical, high time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.find(r, now)
	if e == nil {
		return 0, 0
	}
	return e.typical.duration(), e.high.duration()
}

// add records d as a latency of r and of its host. The caller holds l.mu.
func (l *Latencies) add(r HostRoute, d latency, now time.Time) {
	if l.sets == nil {
		l.sets = make([][2]latencyEntry, latencySets)
	}
	for _, hash := range [...]uint64{r.Host, r.Route} {
		e := l.entry(hash, now)
		if e == nil {
			set := &l.sets[hash%latencySets]
			if e = &set[0]; set[1].at.Before(e.at) {
				e = &set[1]
			}
			*e = latencyEntry{hash: hash}
		}
		e.add(d, now)
	}
}

// add adds d, which ended now, to the latest latencies of e.
func (e *latencyEntry) add(d latency, now time.Time) {
	e.latest[e.next] = d
	e.next = (e.next + 1) % latencyCount
	e.count = min(e.count+1, latencyCount)
	e.at = ticks.Later(e.at, now)
	sorted := e.latest
	slices.Sort(sorted[:e.count])
	e.typical, e.high = 0, sorted[e.count-1]
	if responses := slices.DeleteFunc(sorted[:e.count], latency.expired); len(responses) > 0 {
		e.typical = responses[len(responses)/4]
	}
}

// find returns the entry of r, or that of its host, or nil if there is none. The caller holds l.mu.
func (l *Latencies) find(r HostRoute, now time.Time) *latencyEntry {
	if e := l.entry(r.Route, now); e != nil {
		return e
	}
	return l.entry(r.Host, now)
}

// entry returns the entry of a route or host, or nil if there is none or it is too old. The caller holds l.mu.
func (l *Latencies) entry(hash uint64, now time.Time) *latencyEntry {
	if l.sets == nil {
		return nil
	}
	set := &l.sets[hash%latencySets]
	for i := range set {
		if e := &set[i]; e.hash == hash && e.count > 0 && now.Sub(e.at) <= latencyMaxAge {
			return e
		}
	}
	return nil
}

// A latency is a duration of at least a microsecond, rounded up to 8 significant bits: the upper half of a
// float32 in microseconds, in which the sign is replaced by a last bit that is set for an expired request.
type latency uint16

func newLatency(d time.Duration, expired bool) latency {
	us := float32(min(max(d, time.Microsecond), math.MaxInt64/2)) / float32(time.Microsecond)
	l := latency((math.Float32bits(us) + 1<<16 - 1) >> 16 << 1)
	if expired {
		l |= 1
	}
	return l
}

func (l latency) expired() bool { return l&1 != 0 }

func (l latency) duration() time.Duration {
	return time.Duration(float64(math.Float32frombits(uint32(l>>1)<<16)) * float64(time.Microsecond))
}

// A HostRoute is the hash of a host, and that of a route of this host.
type HostRoute struct{ Host, Route uint64 }

// HostRouteOf returns the HostRoute of req.
func HostRouteOf(seed maphash.Seed, req *http.Request) (r HostRoute) {
	var h maphash.Hash
	h.SetSeed(seed)
	_, _ = h.WriteString(req.URL.Host)
	r.Host = h.Sum64()
	var buf [Max]byte
	_, _ = h.Write(Append(buf[:0], req))
	r.Route = h.Sum64()
	return r
}
