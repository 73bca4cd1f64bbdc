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
		need += model.DeclaredBytes
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

// evictQuotas drops quotas, the least recently used first, until there is memory for one more, with the first of limits. It
// reports false if that is not possible: it drops only idle quotas, and of the unknown one only what it has learned. The
// caller holds ep.mu.
func (ep *endpoint) evictQuotas(limits []throttle.RemoteLimit, now time.Time) bool {
	for !ep.hasMemoryForQuota(limits) {
		unknown := ep.unknown.Load()
		oldest, oldestUse := -1, time.Time{}
		for i, q := range ep.quotas {
			if used, idle := q.lastUse(now); idle && q != unknown && (oldest < 0 || used.Before(oldestUse)) {
				oldest, oldestUse = i, used
			}
		}
		small, smallUse := ep.small.oldestIdle(now)
		used, idle := unknown.lastUse(now)
		switch {
		case idle && unknown.knows() && !unknown.unitsUsedUp(now) && !slices.Contains(ep.quotas, unknown) && (oldest < 0 || used.Before(oldestUse)) && (small < 0 || used.Before(smallUse)):
			ep.Memory.Release(unknown.drop() - ep.quotaBytes())
			ep.unknown.Store(ep.newQuota())
			ep.replace(unknown)
		case small >= 0 && len(ep.quotas) < maxQuotas && (oldest < 0 || smallUse.Before(oldestUse)):
			ep.dropSmall(small)
		case oldest < 0:
			return false
		default:
			ep.drop(oldest)
		}
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
