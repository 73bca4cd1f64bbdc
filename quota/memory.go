package quota

import (
	"slices"
	"time"
	"unsafe"

	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/throttle"
)

// Bytes that are reserved.
const (
	quotaBytes     = int64(unsafe.Sizeof(quota{})) + concurrency.SearchBytes + 48 // with its elements of lists
	sharedBytes    = int64(unsafe.Sizeof(sharedState{}))
	unitQuotaBytes = int64(unsafe.Sizeof(unitQuota{})) + 24 // without its strings
	routeBytes     = 24
)

// hasMemoryForQuota reports whether a quota with a route and the first of limits can be added without dropping another quota.
func (ep *endpoint) hasMemoryForQuota(limits []throttle.RemoteLimit) bool {
	need := ep.quotaBytes() + routeBytes + estimateBytes(limits)
	if all := ep.tracker.declared.Load(); all != nil && (*all)[ep.host].Count > 0 {
		need += model.LearnedBytes
	}
	return len(ep.quotas) < maxQuotas && ep.Memory.Load()+need <= model.MaxBytes
}

// estimateBytes returns the number of bytes that an estimate of the first of limits takes.
func estimateBytes(limits []throttle.RemoteLimit) int64 {
	if len(limits) == 0 {
		return model.EstimateBytes
	}
	return model.EstimateBytes + int64(len(limits[0].Name))
}

// evictQuotas drops what was used least recently until there is memory for one more quota, with the first of limits: quotas,
// routes with a small quota, and what the unknown quota knows. It reports false if that is not possible: what is in use stays.
// The caller holds ep.mu.
func (ep *endpoint) evictQuotas(limits []throttle.RemoteLimit, now time.Time) bool {
	for !ep.hasMemoryForQuota(limits) {
		var drop func() // nil: all is in use
		var oldest time.Time
		consider := func(used time.Time, f func()) {
			if drop == nil || used.Before(oldest) {
				drop, oldest = f, used
			}
		}
		unknown := ep.unknown.Load()
		for i, q := range ep.quotas {
			if used, idle := q.lastUse(now); idle && q != unknown {
				consider(used, func() { ep.drop(i) })
			}
		}
		if i, used := ep.small.oldestIdle(now); i >= 0 && len(ep.quotas) < maxQuotas {
			consider(used, func() { ep.dropSmall(i) })
		}
		if used, idle := unknown.lastUse(now); idle && unknown.knows() && !unknown.unitsUsedUp(now) && !slices.Contains(ep.quotas, unknown) {
			consider(used, ep.renewUnknown)
		}
		if drop == nil {
			return false
		}
		drop()
	}
	return true
}

// renewUnknown replaces the unknown quota, which is none of ep.quotas, by one that knows nothing.
func (ep *endpoint) renewUnknown() {
	unknown := ep.unknown.Load()
	ep.Memory.Release(unknown.drop() - ep.quotaBytes()) // which are not reserved for it
	ep.unknown.Store(ep.newQuota())
	ep.replace(unknown)
}

// drop removes the quota with index i, its routes and its patterns. The caller holds ep.mu.
func (ep *endpoint) drop(i int) {
	gone := ep.quotas[i]
	ep.quotas = slices.Delete(ep.quotas, i, i+1)
	for route, q := range ep.routes {
		if q == gone {
			delete(ep.routes, route)
			ep.Memory.Release(routeBytes)
		}
	}
	ep.Memory.Release(ep.patterns.Forget(gone) + gone.drop())
}

// quotaBytes returns the number of bytes that are reserved for a quota that knows nothing.
func (ep *endpoint) quotaBytes() int64 {
	if ep.tracker.sharing != nil {
		return quotaBytes + sharedBytes
	}
	return quotaBytes
}

// drop removes what q knows, and prevents it from learning anything: a Demand may still refer to q. It
// returns the number of bytes that were reserved for q.
func (q *quota) drop() (bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes = q.endpoint.quotaBytes() + q.DropAll()
	for _, u := range q.units {
		bytes += u.bytes() + u.drop()
	}
	q.units = nil
	return bytes
}

// knows reports whether q knows anything that a new quota does not.
func (q *quota) knows() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.Estimates)+len(q.units) > 0 || q.Learned != nil && !q.Learned.Window.Declared
}

// unitsUsedUp reports whether nothing is left of a limit in another unit than requests.
func (q *quota) unitsUsedUp(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(q.units, func(u *unitQuota) bool { return u.usedUp(now) })
}

// forget removes everything that q knows, so that it admits all requests from now on.
func (q *quota) forget(now time.Time) {
	q.change(now, func(time.Time) { q.ForgetAll() })
	q.drop()
}
