package quota

import (
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/statedlimit"
)

// Bytes that are reserved.
const (
	// maxBytes is less than 16 KiB because the endpoint itself, its unknown quota, its names
	// and the empty slots of maps are not reserved.
	maxBytes = 27 << 9

	quotaBytes     = int64(unsafe.Sizeof(quota{})) + 48 // with its elements of lists
	sharedBytes    = int64(unsafe.Sizeof(sharedState{}))
	estimateBytes  = int64(unsafe.Sizeof(statedlimit.Estimate{})) + 48 // with the rounding to size classes; without its name
	inferenceBytes = int64(unsafe.Sizeof(inference{})) + 8
	unitQuotaBytes = int64(unsafe.Sizeof(unitQuota{})) + 24 // without its strings
	routeBytes     = 24
)

// staleAfter is the time after its end at which a hold that no probe has tested counts as over.
const staleAfter = 10 * time.Minute

// bytesOf returns the number of bytes that are reserved for estimates.
func bytesOf(list []statedlimit.Estimate) (n int64) {
	for i := range list {
		n += estimateBytes + int64(len(list[i].Name))
		if list[i].HasLog() {
			n += statedlimit.LogBytes
		}
	}
	return n
}

// addEstimate returns list with e appended. The name of e is copied, because it refers to the whole
// header field. addEstimate reports false, and returns list unchanged, if list is full or there is
// no memory.
func (ep *endpoint) addEstimate(list []statedlimit.Estimate, e statedlimit.Estimate) ([]statedlimit.Estimate, bool) {
	if len(list) == statedlimit.MaxEstimates || !ep.reserve(estimateBytes+int64(len(e.Name))) {
		return list, false
	}
	e.Name = strings.Clone(e.Name)
	grown := make([]statedlimit.Estimate, len(list)+1) // append would allocate more
	copy(grown, list)
	grown[len(list)] = e
	return grown, true
}

// hasMemoryForQuota reports whether a quota can be added without dropping another one.
func (ep *endpoint) hasMemoryForQuota() bool {
	return len(ep.quotas) < maxQuotas && ep.memory.Load()+quotaBytes+estimateBytes <= maxBytes
}

// evictQuotas drops quotas, the least recently used first, until there is memory for one more. It
// reports false if that is not possible: it drops only idle quotas, and never the unknown one. The
// caller holds ep.mu.
func (ep *endpoint) evictQuotas(now time.Time) bool {
	for !ep.hasMemoryForQuota() {
		oldest, oldestUse := -1, time.Time{}
		for i, q := range ep.quotas {
			if used, idle := q.lastUse(now); idle && q != ep.unknown.Load() && (oldest < 0 || used.Before(oldestUse)) {
				oldest, oldestUse = i, used
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
	for route, q := range ep.routes {
		if q == gone {
			delete(ep.routes, route)
			ep.release(routeBytes)
		}
	}
	ep.release(ep.patterns.Forget(gone) + gone.drop())
}

// drop removes what q knows, and prevents it from learning anything: a Demand may still refer to q. It
// returns the number of bytes that were reserved for q.
func (q *quota) drop() (bytes int64) {
	bytes = quotaBytes + q.unitQuota.drop()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inference != nil {
		bytes += inferenceBytes
	}
	if q.shared != nil {
		bytes += sharedBytes
	}
	for _, u := range q.units {
		bytes += u.bytes() + u.drop()
	}
	q.units, q.inference = nil, nil
	return bytes
}

// forget removes everything that q knows, so that it admits all requests from now on.
func (q *quota) forget(now time.Time) {
	q.change(now, func(time.Time) {
		q.hold, q.slow, q.slowStart = hold.Hold{LastSent: q.hold.LastSent}, concurrency.SlowResponses{}, concurrency.SlowStart{Successes: concurrency.KnownAfter}
		q.estimates, q.inference = nil, nil
	})
	q.drop()
}

// lastUse returns when q last admitted a request. It reports whether q is idle: it admits all
// requests as of now, and none is in flight.
func (q *quota) lastUse(now time.Time) (at time.Time, idle bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	h, inf := &q.hold, q.inference
	held := h.Until.After(now) || h.Active && h.Until.After(now.Add(-staleAfter))
	estimated := inf != nil && (inf.loop.On() || inf.loopPending || inf.stopPending || inf.window.On() && now.Before(inf.window.Reset))
	usedUp := slices.ContainsFunc(q.estimates, func(e statedlimit.Estimate) bool { return e.Remaining <= 0 && now.Before(e.Reset) })
	return q.lastGranted, q.inFlight.Open == 0 && !held && !estimated && !usedUp
}
