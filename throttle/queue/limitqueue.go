package queue

import (
	"math"
	"reflect"

	"github.com/heed-go/heed/internal/indexheap"
	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// never is an instant that does not come.
const never = math.MaxInt64

// A limitQueue is one limit that somebody waits for, as seen by the Queue.
//
// Lines queue at the gate that refused their first. Only the first line of the
// queue is asked for, so that a large claim is not starved by small ones that
// would fit earlier.
type limitQueue struct {
	key              limitKey
	id               uint64
	numClasses       int                                   // lines that must pass it
	tenants          indexheap.Heap[*tenantQueue, byUsage] // tenants that have lines here
	defaultTenant    tenantQueue                           // of those who name no tenant
	byTenant         map[string]*tenantQueue               // of those who do
	sweepAt          int                                   // how many shares there may be before idle ones are forgotten
	lastUsage        int64                                 // by who was granted last, before that
	retryAt          int64                                 // when to ask for the first
	retryExact       bool                                  // that it will be granted then; else it is just time to ask again
	scheduledIndex   int                                   // in Queue.scheduled, or -1
	bound            int64                                 // one more than the units that may wait; 0: no bound is known
	waitingUnits     int64                                 // units that wait here, saturating
	policy           *string                               // the limit's name, as of its last refusal
	broken           int                                   // promises in a row that it did not keep
	generation       uint64                                // how often there was news of it
	lastRefusal      uint64                                // Queue.numRefusals after its last refusal
	announcedRetryAt int64                                 // the latest opening that the other side imposed and all who wait know of
}

// A tenantQueue is what a tenant has had of a gate, and its lines there.
//
// Who has had least, by weight, goes first. A tenant that comes, or comes back,
// starts level with the others: to have been away earns nothing.
type tenantQueue struct {
	usage   int64 // units by weight, see charge
	entries indexheap.Heap[*queueEntry, byHeadWaiter]
	index   int // in limitQueue.tenants, or -1
}

// A queueEntry is where a line stands at a gate.
type queueEntry struct {
	class           *class
	limitQueue      *limitQueue
	tenantQueue     *tenantQueue // nil: not in the queue
	index           int          // in tenantQueue.entries
	blockedTime     int64        // nanoseconds that the line waited for this gate, lately
	prevBlockedTime int64        // and in the time before, see class.longestWait
}

type limitKey struct {
	limiter any
	key     string
}

// maxParts is the largest throttle.AllOf whose limits each have a gate. A larger one has a gate of
// its own, as any other limiter.
const (
	maxParts       = 4
	maxLimitQueues = MaxDemands * maxParts
)

// numLimits returns how many limits m consists of: those of a throttle.AllOf count by themselves, so
// that they share their limitQueues with demands for them alone.
func numLimits(m *throttle.Demand) int {
	if m.Limiter == nil {
		return 0
	}
	if parts := throttle.Parts(m.Limiter); len(parts) <= maxParts && len(parts) > 0 {
		return len(parts)
	}
	return 1
}

// limitKeyOf returns the key of the i-th limit of m. Limiters that cannot be compared cannot
// be recognized: each demand for one has a limitQueue of its own.
func limitKeyOf(m *throttle.Demand, i int) limitKey {
	l := m.Limiter
	if parts := throttle.Parts(l); len(parts) <= maxParts && len(parts) > 0 {
		l = parts[min(i, len(parts)-1)]
	} else {
		i = 0
	}
	if !reflect.ValueOf(l).Comparable() {
		return limitKey{incomparableLimiter{m, i}, m.Key}
	}
	return limitKey{l, m.Key}
}

// An incomparableLimiter names a limiter that cannot be compared.
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
	return a.class.waiters.Order.Less(a.class.waiters.First(), b.class.waiters.First())
}
func (byHeadWaiter) SetIndex(e *queueEntry, i int) { e.index = i }

// first returns the place that is asked for; nil if nobody waits.
func (lq *limitQueue) first() *queueEntry {
	if lq.tenants.Len() == 0 {
		return nil
	}
	return lq.tenants.First().entries.First()
}

// mustYield reports whether somebody who waits at the gate of p goes before p.
func (e *queueEntry) mustYield() bool {
	first := e.limitQueue.first()
	if first == nil || first == e {
		return false
	}
	own, usage := e.limitQueue.tenant(e.class.key.tenant), e.limitQueue.baseUsage()
	if own != nil {
		usage = max(usage, own.usage)
	}
	if own == first.tenantQueue || usage == first.tenantQueue.usage {
		return byHeadWaiter{}.Less(first, e)
	}
	return first.tenantQueue.usage < usage
}

// baseUsage is what a tenant who comes anew counts as having had: as much as the one
// who goes next. Were it less, ever new tenants could starve one that is in line.
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

// sweepTenants drops the shares that equal no share: idle, and not ahead of the others.
func (lq *limitQueue) sweepTenants() {
	for tenant, tq := range lq.byTenant {
		if tq.index < 0 && tq.usage <= lq.baseUsage() {
			delete(lq.byTenant, tenant)
		}
	}
	lq.sweepAt = 2 * len(lq.byTenant)
}

// charge notes that tenant got units of g. Units are counted in 1/scale, so that
// weights can divide them.
func (q *Queue) charge(e *queueEntry, units, weight int64) {
	const scale = 1 << 16
	lq := e.limitQueue
	tq, prevFirst := lq.addTenant(e.class.key.tenant), lq.first()
	if tq.index < 0 {
		tq.usage = max(tq.usage, lq.baseUsage())
	}
	lq.lastUsage = max(lq.lastUsage, tq.usage)
	tq.usage = ticks.Add(tq.usage, max(ticks.Mul(max(units, 1), scale)/max(weight, 1), 1))
	if tq.index >= 0 {
		lq.tenants.Fix(tq.index)
	}
	if lq.first() != prevFirst {
		q.schedule(lq, q.claimTime, false)
	}
}

// enqueue puts p into the queue of its gate.
func (e *queueEntry) enqueue() {
	if e.tenantQueue != nil {
		return
	}
	lq := e.limitQueue
	tq := lq.addTenant(e.class.key.tenant)
	e.tenantQueue = tq
	if tq.entries.Push(e); tq.index >= 0 {
		lq.tenants.Fix(tq.index)
		return
	}
	tq.usage = max(tq.usage, lq.baseUsage())
	lq.tenants.Push(tq)
}

// dequeue takes p out of the queue of its gate. Who is first there now is asked for
// at once, as it may want less.
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

// reorder moves p to where it belongs now that its line has another first.
func (q *Queue) reorder(e *queueEntry) {
	lq := e.limitQueue
	first := lq.first() == e
	e.tenantQueue.entries.Fix(e.index)
	lq.tenants.Fix(e.tenantQueue.index)
	if first || lq.first() == e {
		q.schedule(lq, q.claimTime, false)
	}
}

// schedule says when to ask at g.
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

// wakeLimit asks at g at once, as there is news of it.
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
		lq = &limitQueue{key: k, id: q.lastLimitQueueID, retryAt: never, scheduledIndex: -1, policy: new(string)}
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
		q.limitQueues = nil // a map keeps the memory of its best days
	}
}
