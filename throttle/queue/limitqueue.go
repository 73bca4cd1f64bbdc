package queue

import (
	"math"
	"reflect"
	"time"

	"github.com/heed-go/heed/internal/adapter"
	"github.com/heed-go/heed/internal/indexheap"
	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// never is later than all other instants.
const never = math.MaxInt64

// A limitQueue is the queue of the classes that wait for one limit.
//
// A class is in the limitQueue of the limit that rejected its head. Only the first class of a
// limitQueue asks the limiter, so that smaller claims behind a large one do not starve it.
type limitQueue struct {
	key              limitKey
	id               uint64
	numClasses       int                                   // classes that need the limit
	tenants          indexheap.Heap[*tenantQueue, byUsage] // tenants with classes that wait here
	defaultTenant    tenantQueue                           // of tickets without a Tenant
	byTenant         map[string]*tenantQueue               // of tickets with a Tenant
	sweepAt          int                                   // sweepTenants runs when byTenant has this size
	lastUsage        int64                                 // virtual time: the highest usage of a tenant when it was granted, before the charge
	retryAt          int64                                 // when to ask for the first entry
	retryExact       bool                                  // the limit stated retryAt; else it is unknown when it will grant
	scheduledIndex   int                                   // in Queue.scheduled, or -1
	bound            int64                                 // one more than the units that may wait; 0: not known to be bounded
	waiting          int                                   // waiters that need the limit
	waitingUnits     int64                                 // units of all waiters that need the limit
	lateUnits        int64                                 // units of those that are late
	since            int64                                 // when the limitQueue was made
	granted          uint64                                // waiters that were granted since then
	lastGrant        int64                                 // when the latest of them was granted
	grantInterval    int64                                 // moving average of the time between them
	rejected         uint64                                // waiters that were rejected here since then
	last             *limitState                           // the limit in its last rejection
	before           *limitState                           // what rejections stated before they began to state last; nil: nothing
	changedAt        int64                                 // when they began to
	broken           int                                   // consecutive rejections at a time that the limit stated itself
	generation       uint64                                // incremented by each event that may change the limiter's decision
	lastRefusal      uint64                                // Queue.numRefusals after the last rejection
	announcedRetryAt int64                                 // the latest retryAt for which rejectHopeless has run
}

// A tenantQueue holds the usage of a limit by one tenant, and its classes that wait there.
//
// The tenant with the lowest usage is granted first. A tenant that is new or was idle starts
// at the usage of the others, so that idle time earns no units. This is start-time fair
// queueing (Goyal, Vin and Cheng, SIGCOMM 1996): usage is the start tag of the next grant.
type tenantQueue struct {
	usage   int64 // weighted units, see charge
	entries indexheap.Heap[*queueEntry, byHeadWaiter]
	index   int // in limitQueue.tenants, or -1
}

// A queueEntry is the position of a class in a limitQueue.
type queueEntry struct {
	class           *class
	limitQueue      *limitQueue
	tenantQueue     *tenantQueue // nil: the class does not wait here
	index           int          // in tenantQueue.entries
	blockedTime     int64        // nanoseconds that the class waited here, in the current period
	prevBlockedTime int64        // the same in the previous period, see class.longestWait
}

// A limitState is what a rejection states of a limit. Tickets that have waited for the limit
// refer to it, so it is replaced and not changed.
type limitState struct {
	name          string
	serverImposed bool
	estimated     bool
	perUnit       time.Duration // in which one unit is restored; 0: not known
}

type limitKey struct {
	limiter any
	key     string
}

// maxParts is the maximum number of limits of a throttle.AllOf that each have a limitQueue. A
// larger AllOf has a single limitQueue.
const (
	maxParts       = 4
	maxLimitQueues = MaxDemands * maxParts
)

// numLimits returns the number of limits of m. The limits of a throttle.AllOf count
// separately, so that they share their limitQueues with demands for these limits alone.
func numLimits(m *throttle.Demand) int {
	if m.Limiter == nil {
		return 0
	}
	if parts := throttle.Parts(m.Limiter); len(parts) <= maxParts && len(parts) > 0 {
		return len(parts)
	}
	return 1
}

// limitKeyOf returns the key of the i-th limit of m. A limiter whose type is not comparable
// has a separate limitQueue for each demand.
func limitKeyOf(m *throttle.Demand, i int) limitKey {
	k := limitKey{m.Limiter, m.Key}
	if parts := throttle.Parts(m.Limiter); len(parts) <= maxParts && len(parts) > 0 {
		k.limiter = parts[min(i, len(parts)-1)]
		if a, ok := k.limiter.(adapter.Adapter); ok {
			to := a.Adapted(m.Key)
			k = limitKey{to.Limiter, to.Key}
		}
	} else {
		i = 0
	}
	if !reflect.ValueOf(k.limiter).Comparable() {
		k.limiter = incomparableLimiter{m, i}
	}
	return k
}

// An incomparableLimiter stands for a limiter whose type is not comparable.
type incomparableLimiter struct {
	demand *throttle.Demand
	i      int
}

type byRetryTime struct{}

func (byRetryTime) Less(a, b *limitQueue) bool     { return a.retryAt < b.retryAt }
func (byRetryTime) SetIndex(lq *limitQueue, i int) { lq.scheduledIndex = i }

type byUsage struct{}

func (byUsage) Less(a, b *tenantQueue) bool {
	return a.usage < b.usage || a.usage == b.usage && byHeadWaiter{}.Less(a.entries.First(), b.entries.First())
}
func (byUsage) SetIndex(tq *tenantQueue, i int) { tq.index = i }

type byHeadWaiter struct{}

func (byHeadWaiter) Less(a, b *queueEntry) bool {
	return a.class.waiters.Order.isBefore(a.class.waiters.First().ticket, b.class.waiters.First().ticket)
}
func (byHeadWaiter) SetIndex(e *queueEntry, i int) { e.index = i }

// first returns the entry that is granted next; nil if no class waits.
func (lq *limitQueue) first() *queueEntry {
	if lq.tenants.Len() == 0 {
		return nil
	}
	return lq.tenants.First().entries.First()
}

// mustYield reports whether another class that waits at the limit of e goes before e.
func (e *queueEntry) mustYield() bool {
	first := e.limitQueue.first()
	if first == nil || first == e {
		return false
	}
	usage := e.limitQueue.usageToWait(e.limitQueue.tenant(e.class.key.tenant))
	return first.tenantQueue.usage < usage || first.tenantQueue.usage == usage && byHeadWaiter{}.Less(first, e)
}

// usageToWait returns the usage of tq while it waits: its present one if it waits already,
// else at least that of a new tenant. A nil tq is a new tenant.
func (lq *limitQueue) usageToWait(tq *tenantQueue) int64 {
	switch {
	case tq == nil:
		return lq.baseUsage()
	case tq.index >= 0:
		return tq.usage
	default:
		return max(tq.usage, lq.baseUsage())
	}
}

// baseUsage returns the usage at which a new tenant starts: that of the tenant that is granted
// next, or was granted last if that is higher. With a lower one, a succession of new tenants
// could starve a waiting tenant.
func (lq *limitQueue) baseUsage() int64 {
	if lq.tenants.Len() == 0 {
		return lq.lastUsage
	}
	return max(lq.lastUsage, lq.tenants.First().usage)
}

func (lq *limitQueue) tenant(tenant string) *tenantQueue {
	if tenant == "" {
		return &lq.defaultTenant
	}
	return lq.byTenant[tenant]
}

func (lq *limitQueue) addTenant(tenant string) *tenantQueue {
	if tq := lq.tenant(tenant); tq != nil {
		return tq
	}
	if lq.byTenant == nil {
		lq.byTenant = make(map[string]*tenantQueue)
	}
	if len(lq.byTenant) >= max(lq.sweepAt, 16) {
		lq.sweepTenants()
	}
	tq := &tenantQueue{index: -1}
	lq.byTenant[tenant] = tq
	return tq
}

// sweepTenants removes the idle tenants whose usage does not exceed that of a new tenant.
func (lq *limitQueue) sweepTenants() {
	for tenant, tq := range lq.byTenant {
		if tq.index < 0 && tq.usage <= lq.baseUsage() {
			delete(lq.byTenant, tenant)
		}
	}
	lq.sweepAt = 2 * len(lq.byTenant)
}

// charge adds units, divided by weight, to the usage of the tenant of e. Usage is counted in
// 1/scale units, so that the division keeps its fraction.
func (q *Queue) charge(e *queueEntry, units, weight int64) {
	const scale = 1 << 16
	lq := e.limitQueue
	lq.countGrant(q.now)
	tq, prevFirst := lq.addTenant(e.class.key.tenant), lq.first()
	tq.usage = lq.usageToWait(tq)
	lq.lastUsage = max(lq.lastUsage, tq.usage)
	tq.usage = ticks.Add(tq.usage, max(ticks.Mul(max(units, 1), scale)/max(weight, 1), 1))
	if tq.index >= 0 {
		lq.tenants.Fix(tq.index)
	}
	if lq.first() != prevFirst {
		q.schedule(lq, q.claimTime, false)
	}
}

// countGrant counts a waiter that is granted at now.
func (lq *limitQueue) countGrant(now int64) {
	if lq.granted++; lq.granted > 1 {
		lq.grantInterval += (ticks.Sub(now, lq.lastGrant) - lq.grantInterval) / 8
	}
	lq.lastGrant = now
}

// enqueue adds e to its limitQueue.
func (e *queueEntry) enqueue() {
	if e.tenantQueue != nil {
		return
	}
	lq := e.limitQueue
	tq := lq.addTenant(e.class.key.tenant)
	e.tenantQueue, tq.usage = tq, lq.usageToWait(tq)
	if tq.entries.Push(e); tq.index >= 0 {
		lq.tenants.Fix(tq.index)
		return
	}
	lq.tenants.Push(tq)
}

// dequeue removes e from its limitQueue. If e was first, the next entry is tried immediately,
// as it may need fewer units.
func (q *Queue) dequeue(e *queueEntry) {
	if e.tenantQueue == nil {
		return
	}
	lq, tq := e.limitQueue, e.tenantQueue
	first := lq.first() == e
	e.tenantQueue = nil
	if tq.entries.Remove(e.index); tq.entries.Len() > 0 {
		lq.tenants.Fix(tq.index)
	} else {
		lq.tenants.Remove(tq.index)
	}
	switch {
	case lq.tenants.Len() == 0:
		q.schedule(lq, never, false)
	case first:
		q.schedule(lq, q.claimTime, false)
	}
}

// reorder restores the position of e after the head of its class has changed.
func (q *Queue) reorder(e *queueEntry) {
	lq := e.limitQueue
	first := lq.first() == e
	e.tenantQueue.entries.Fix(e.index)
	lq.tenants.Fix(e.tenantQueue.index)
	if first || lq.first() == e {
		q.schedule(lq, q.claimTime, false)
	}
}

// schedule sets when to ask the limiter of lq; never removes it from the schedule.
func (q *Queue) schedule(lq *limitQueue, retryAt int64, exact bool) {
	lq.retryAt, lq.retryExact = retryAt, exact
	switch {
	case retryAt < never && lq.scheduledIndex < 0:
		q.scheduled.Push(lq)
	case retryAt < never:
		q.scheduled.Fix(lq.scheduledIndex)
	case lq.scheduledIndex >= 0:
		q.scheduled.Remove(lq.scheduledIndex)
	}
}

// wakeLimit schedules lq immediately, because its limiter may decide differently now.
func (q *Queue) wakeLimit(lq *limitQueue) {
	lq.generation++
	if lq.tenants.Len() > 0 && lq.retryAt > q.now {
		q.schedule(lq, q.now, false)
	}
}

func (q *Queue) limitQueueFor(k limitKey) *limitQueue {
	lq := q.limitQueues[k]
	if lq == nil {
		q.lastLimitQueueID++
		lq = &limitQueue{key: k, id: q.lastLimitQueueID, since: q.now, retryAt: never, scheduledIndex: -1, last: new(limitState)}
		lq.defaultTenant.index = -1
		if q.limitQueues == nil {
			q.limitQueues = make(map[limitKey]*limitQueue)
		}
		q.limitQueues[k] = lq
	}
	return lq
}

func (q *Queue) removeLimitQueue(lq *limitQueue) {
	delete(q.limitQueues, lq.key)
	if len(q.limitQueues) == 0 {
		q.limitQueues = nil // release the memory: a map does not shrink
	}
}
