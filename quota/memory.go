package quota

import (
	"strings"
	"sync/atomic"
	"time"
	"unsafe"
)

// A memoryBudget bounds the memory that one account at one host holds, whatever the server sends:
// quotas, the limits in them, meters, routes and patterns are charged before they are added. What
// exceeds it is not tracked. It is less than 16 KiB, since the site itself, its fresh quota and the
// names of its policies are not charged, and maps have empty places.
type memoryBudget struct{ used atomic.Int64 }

const (
	maxBytes = 14 << 10

	quotaBytes     = int64(unsafe.Sizeof(quota{})) + 48 // its places in lists
	sharedBytes    = int64(unsafe.Sizeof(sharedState{}))
	estimateBytes  = int64(unsafe.Sizeof(estimate{})) + 48 // for the size classes of slices
	inferenceBytes = int64(unsafe.Sizeof(inference{})) + 8
	unitQuotaBytes = int64(unsafe.Sizeof(unitQuota{})) + 24
	sendLogBytes   = int64(unsafe.Sizeof(sendLog{}))
	routeBytes     = 24
)

// reserve charges n bytes. It reports false if that is too much.
func (m *memoryBudget) reserve(n int64) bool {
	if m.used.Add(n) > maxBytes {
		m.used.Add(-n)
		return false
	}
	return true
}

func (m *memoryBudget) release(n int64) { m.used.Add(-n) }

// bytes returns what b is charged with.
func (q *quota) bytes() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := quotaBytes + bytesOf(q.estimates)
	if q.inference != nil {
		n += inferenceBytes
	}
	if q.shared != nil {
		n += sharedBytes
	}
	for _, u := range q.units {
		u.mu.Lock()
		n += u.bytes() + bytesOf(u.estimates)
		u.mu.Unlock()
	}
	return n
}

func bytesOf(list []estimate) (n int64) {
	for i := range list {
		n += estimateBytes + int64(len(list[i].name))
		if list[i].refill.log != nil {
			n += sendLogBytes
		}
	}
	return n
}

func (u *unitQuota) bytes() int64 { return unitQuotaBytes + int64(len(u.unit)+len(u.policy)) }

// addEstimate adds t to list, with a copy of its name: that is part of a header, which would be
// kept, too. It reports false if there is no room.
func (ep *endpoint) addEstimate(list []estimate, e estimate) ([]estimate, bool) {
	if len(list) == maxEstimates || !ep.memory.reserve(estimateBytes+int64(len(e.name))) {
		return list, false
	}
	e.name = strings.Clone(e.name)
	grown := make([]estimate, len(list)+1) // append would make room for more
	copy(grown, list)
	grown[len(list)] = e
	return grown, true
}

// newQuota returns a quota of s of which nothing is known. It is charged when it becomes a pool.
func (ep *endpoint) newQuota(good int) *quota {
	q := &quota{endpoint: ep, successes: good}
	if ep.tracker.sharing != nil {
		q.shared = new(sharedState)
	}
	ep.tracker.declared.apply(q)
	return q
}

// room makes room for one more pool and reports whether there is any. If need be, the pool that
// was used longest ago goes, but none that holds requests back or has some in flight.
func (ep *endpoint) room(now time.Time) bool {
	need := quotaBytes + estimateBytes
	for len(ep.quotas) == maxQuotas || ep.memory.used.Load()+need > maxBytes {
		oldest := -1
		for i, q := range ep.quotas {
			if q != ep.unknown.Load() && q.idle(now) && (oldest < 0 || q.lastUse().Before(ep.quotas[oldest].lastUse())) {
				oldest = i
			}
		}
		if oldest < 0 {
			return false
		}
		ep.drop(oldest)
	}
	return true
}

// drop forgets a pool, its routes and its patterns.
func (ep *endpoint) drop(i int) {
	gone := ep.quotas[i]
	ep.quotas = append(ep.quotas[:i], ep.quotas[i+1:]...)
	ep.quotas[:len(ep.quotas)+1][len(ep.quotas)] = nil
	ep.memory.release(gone.bytes())
	for route, q := range ep.routes {
		if q == gone {
			delete(ep.routes, route)
			ep.memory.release(routeBytes)
		}
	}
	ep.memory.release(int64(ep.patterns.forget(gone)) * setBytes)
	gone.drop()
}

// drop makes b keep nothing from now on. A Demand may still have it.
func (q *quota) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, u := range q.units {
		u.mu.Lock()
		u.estimates, u.dropped = nil, true
		u.mu.Unlock()
	}
	q.estimates, q.units, q.inference, q.dropped = nil, nil, nil, true
}

func (q *quota) isDropped() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// idle reports whether b lets all requests go as of now and none is in flight.
func (q *quota) idle(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inFlight.open > 0 || q.hold.until.After(now.Add(-staleAfter)) && q.hold.active || q.hold.until.After(now) || q.inference != nil && q.inference.holds(now) {
		return false
	}
	for i := range q.estimates {
		if e := &q.estimates[i]; e.remaining <= 0 && now.Before(e.reset) {
			return false
		}
	}
	return true
}

// longAgo is after what time a hold that nothing has tested is as good as over.
const staleAfter = 10 * time.Minute

// holds reports whether the estimator has an estimate that matters as of now.
func (inf *inference) holds(now time.Time) bool {
	return inf.loop.on() || inf.pending || inf.stopNext || inf.window.on() && now.Before(inf.window.reset)
}

func (q *quota) lastUse() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lastGranted
}
