package quota

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"
)

// A memoryBudget bounds the memory of one endpoint to 16 KiB, whatever the server sends: quotas,
// their estimates, unit quotas, routes and patterns reserve bytes before they are added, and are
// not tracked if these are not available.
type memoryBudget struct{ used atomic.Int64 }

// Bytes that are reserved.
const (
	// maxBytes is less than 16 KiB because the endpoint itself, its unknown quota, its policyNames
	// and the empty slots of maps are not reserved.
	maxBytes = 27 << 9

	quotaBytes     = int64(unsafe.Sizeof(quota{})) + 48 // with its elements of lists
	sharedBytes    = int64(unsafe.Sizeof(sharedState{}))
	estimateBytes  = int64(unsafe.Sizeof(estimate{})) + 48 // with the rounding to size classes; without its name
	inferenceBytes = int64(unsafe.Sizeof(inference{})) + 8
	unitQuotaBytes = int64(unsafe.Sizeof(unitQuota{})) + 24 // without its strings
	sendLogBytes   = int64(unsafe.Sizeof(sendLog{}))
	routeBytes     = 24
)

// staleAfter is the time after its end at which a hold that no probe has tested counts as over.
const staleAfter = 10 * time.Minute

// reserve reserves n bytes. It reports false, and reserves nothing, if they are not available.
func (m *memoryBudget) reserve(n int64) bool {
	if m.used.Add(n) > maxBytes {
		m.used.Add(-n)
		return false
	}
	return true
}

func (m *memoryBudget) release(n int64) { m.used.Add(-n) }

// bytes returns the number of bytes that are reserved for q.
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

// bytes returns the number of bytes that are reserved for u without its estimates.
func (u *unitQuota) bytes() int64 { return unitQuotaBytes + int64(len(u.unit)+len(u.policy)) }

// addEstimate returns list with e appended. The name of e is copied, because it refers to the whole
// header field. addEstimate reports false, and returns list unchanged, if list is full or there is
// no memory.
func (ep *endpoint) addEstimate(list []estimate, e estimate) ([]estimate, bool) {
	if len(list) == maxEstimates || !ep.memory.reserve(estimateBytes+int64(len(e.name))) {
		return list, false
	}
	e.name = strings.Clone(e.name)
	grown := make([]estimate, len(list)+1) // append would allocate more
	copy(grown, list)
	grown[len(list)] = e
	return grown, true
}

// newQuota returns a quota of ep that has the number of successful responses and, apart from a
// declared limit, knows nothing. Its memory is reserved when it is added to ep.quotas.
func (ep *endpoint) newQuota(successes int) *quota {
	q := &quota{endpoint: ep, slowStart: slowStart{successes: successes}}
	if ep.tracker.sharing != nil {
		q.shared = new(sharedState)
	}
	ep.tracker.declared.apply(q)
	return q
}

// hasMemoryForQuota reports whether a quota can be added without dropping another one.
func (ep *endpoint) hasMemoryForQuota() bool {
	return len(ep.quotas) < maxQuotas && ep.memory.used.Load()+quotaBytes+estimateBytes <= maxBytes
}

// evictQuotas drops quotas, the least recently used first, until there is memory for one more. It
// reports false if that is not possible: it drops only idle quotas, and never the unknown one. The
// caller holds ep.mu.
func (ep *endpoint) evictQuotas(now time.Time) bool {
	for !ep.hasMemoryForQuota() {
		oldest := -1
		for i, q := range ep.quotas {
			if q != ep.unknown.Load() && q.isIdle(now) && (oldest < 0 || q.lastUse().Before(ep.quotas[oldest].lastUse())) {
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

// drop removes the quota with index i, its routes and its patterns. The caller holds ep.mu.
func (ep *endpoint) drop(i int) {
	gone := ep.quotas[i]
	ep.quotas = slices.Delete(ep.quotas, i, i+1)
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

// drop removes what q knows, and prevents it from learning anything. A Demand may still refer to q.
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

// isIdle reports whether q admits all requests as of now and none is in flight.
func (q *quota) isIdle(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	h := &q.hold
	held := h.until.After(now) || h.active && h.until.After(now.Add(-staleAfter))
	if q.inFlight.open > 0 || held || q.inference != nil && q.inference.limits(now) {
		return false
	}
	for i := range q.estimates {
		if e := &q.estimates[i]; e.remaining <= 0 && now.Before(e.reset) {
			return false
		}
	}
	return true
}

// limits reports whether inf limits requests as of now, or is about to.
func (inf *inference) limits(now time.Time) bool {
	return inf.loop.on() || inf.loopPending || inf.stopPending || inf.window.on() && now.Before(inf.window.reset)
}

// lastUse returns the time at which q last admitted a request.
func (q *quota) lastUse() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lastGranted
}
