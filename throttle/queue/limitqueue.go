package queue

import (
	"cmp"
	"iter"
	"math"
	"reflect"
	"slices"
	"time"

	"github.com/heed-go/heed/internal/indexheap"
	"github.com/heed-go/heed/throttle"
)

// never is later than all other instants.
const never = math.MaxInt64

// A limitQueue is the queue of the classes whose heads one limit has rejected. Only the first
// one asks the limiter, so that smaller claims behind a large one do not starve it.
type limitQueue struct {
	key              limitKey
	id               uint64
	numClasses       int                                    // classes that need the limit
	tenants          indexheap.Heap[*tenantQueue, byFinish] // tenants with classes that wait here
	defaultTenant    tenantQueue                            // of tickets without a Tenant
	byTenant         map[string]*tenantQueue                // of tickets with a Tenant, while a class needs the limit
	virtualTime      tag                                    // the highest finish tag that was granted, see tenantQueue
	retryAt          int64                                  // when to ask for the first entry
	retryExact       bool                                   // the limit stated retryAt; else it is unknown when it will grant
	test             bool                                   // what it grants then is a test, see sample
	scheduledIndex   int                                    // in Queue.scheduled, or -1
	bound            int64                                  // see throttle.Decision.QueueBound; 0: not known to be bounded
	waiting          int                                    // waiters that need the limit
	waitingUnits     int64                                  // units of all waiters that need the limit
	lateUnits        int64                                  // units of those that are late
	since            int64                                  // when the limitQueue was made
	granted          uint64                                 // waiters that were granted since then
	lastGrant        int64                                  // when the latest of them was granted
	grantInterval    int64                                  // moving average of the time between them
	rejected         uint64                                 // waiters that were rejected here since then
	last             *limitState                            // the limit in its last rejection
	before           *limitState                            // what rejections stated before they began to state last; nil: nothing
	changedAt        int64                                  // when they began to
	broken           int                                    // consecutive rejections at a time that the limit stated itself
	lastChange       uint64                                 // the latest event that may have changed the limiter's decision, see countEvent
	lastRejection    uint64                                 // the latest rejection, see countEvent
	announcedRetryAt int64                                  // the latest retryAt for which rejectHopeless has run
}

// A queueEntry is the position of a class in a limitQueue.
type queueEntry struct {
	class           *class
	limitQueue      *limitQueue
	tenantQueue     *tenantQueue // of the tenant of the class
	index           int          // in tenantQueue.entries; -1: the class does not wait here
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

// maxParts is the number of limits of a throttle.AllOf up to which each has a limitQueue, which
// it shares with demands for this limit alone. A larger AllOf has a single limitQueue.
const maxParts = 4

// partsOf returns the limits of l that have a limitQueue each; nil: l has one.
func partsOf(l throttle.Limiter) []throttle.Limiter {
	if parts := l.Traits().Parts; len(parts) <= maxParts {
		return parts
	}
	return nil
}

// numLimits returns the number of limits of m that have a limitQueue each.
func numLimits(m *throttle.Demand) int {
	if m.Limiter == nil {
		return 0
	}
	return max(len(partsOf(m.Limiter)), 1)
}

// limitKeyOf returns the key of the i-th limit of m. A limiter whose type is not comparable
// has a separate limitQueue for each demand.
func limitKeyOf(m *throttle.Demand, i int) limitKey {
	k := limitKey{m.Limiter, m.Key}
	if parts := partsOf(m.Limiter); len(parts) > 0 {
		k.limiter = parts[min(i, len(parts)-1)]
	} else {
		i = 0
	}
	if v := reflect.ValueOf(k.limiter); v.Kind() != reflect.Pointer && !v.Comparable() { // Comparable allocates
		k.limiter = incomparableLimiter{m, i}
	}
	return k
}

// limits iterates over the limits that t needs, with the index of the demand for each.
func (t *Ticket) limits(yield func(i int, k limitKey) bool) {
	for i := range t.Demands {
		for k := range numLimits(&t.Demands[i]) {
			if !yield(i, limitKeyOf(&t.Demands[i], k)) {
				return
			}
		}
	}
}

// limitQueuesOf iterates as limits, over the limitQueues of these limits that exist.
func (q *Queue) limitQueuesOf(t *Ticket) iter.Seq2[int, *limitQueue] {
	return func(yield func(int, *limitQueue) bool) {
		for i, k := range t.limits {
			if lq := q.limitQueues[k]; lq != nil && !yield(i, lq) {
				return
			}
		}
	}
}

// An incomparableLimiter stands for a limiter whose type is not comparable.
type incomparableLimiter struct {
	demand *throttle.Demand
	i      int
}

type byRetryTime struct{}

func (byRetryTime) Less(a, b *limitQueue) bool     { return a.retryAt < b.retryAt }
func (byRetryTime) SetIndex(lq *limitQueue, i int) { lq.scheduledIndex = i }

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

// blocked iterates over the classes that wait at lq, without those that only reserve it.
func (lq *limitQueue) blocked(yield func(*class) bool) {
	for _, tq := range lq.tenants.Items {
		for _, e := range tq.entries.Items {
			if e.class.blockedAt == e && !yield(e.class) {
				return
			}
		}
	}
}

// waitersOf returns a new slice of the waiters that need the limit of lq.
func (q *Queue) waitersOf(lq *limitQueue) (waiters []*waiter) {
	for _, c := range q.classes {
		for i := range c.entries {
			if c.entries[i].limitQueue == lq {
				waiters = append(waiters, c.waiters.Items...)
			}
		}
	}
	return waiters
}

func (q *Queue) insert(e *queueEntry) {
	if e.index >= 0 {
		return
	}
	lq, tq, first := e.limitQueue, e.tenantQueue, e.limitQueue.first()
	tq.start = lq.startFor(tq, e.share(e.class.waiters.First().ticket))
	tq.entries.Push(e)
	lq.fix(tq)
	q.scheduleFirst(lq, first)
}

func (q *Queue) remove(e *queueEntry) {
	if e.index < 0 {
		return
	}
	lq, tq, first := e.limitQueue, e.tenantQueue, e.limitQueue.first()
	if tq.entries.Remove(e.index); tq.entries.Len() > 0 {
		lq.fix(tq)
	} else {
		lq.tenants.Remove(tq.index)
	}
	q.scheduleFirst(lq, first)
}

// reorder restores the position of e after the head of its class has changed.
func (q *Queue) reorder(e *queueEntry) {
	lq, first := e.limitQueue, e.limitQueue.first()
	if first == e {
		first = nil // the new head has not asked
	}
	e.tenantQueue.entries.Fix(e.index)
	lq.fix(e.tenantQueue)
	q.scheduleFirst(lq, first)
}

// scheduleFirst schedules lq immediately if its first entry is another one than before. A class
// that is no longer first at the limit that rejected it loses its reservation: two classes that
// wait behind each other's reservations would wait without end.
func (q *Queue) scheduleFirst(lq *limitQueue, before *queueEntry) {
	first := lq.first()
	switch first {
	case nil:
		q.schedule(lq, never, false)
	case before:
		return
	default:
		q.schedule(lq, q.claimTime, false)
	}
	if before != nil && before.class.blockedAt == before {
		q.endReservation(before.class)
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
	lq.lastChange = q.countEvent()
	if lq.tenants.Len() > 0 && lq.retryAt > q.now {
		q.schedule(lq, q.now, false)
	}
}

func (q *Queue) limitQueueFor(k limitKey) *limitQueue {
	lq := q.limitQueues[k]
	if lq == nil {
		q.lastLimitQueueID++
		lq = &limitQueue{key: k, id: q.lastLimitQueueID, since: q.now, retryAt: never, scheduledIndex: -1, last: new(limitState)}
		if q.limitQueues == nil {
			q.limitQueues = make(map[limitKey]*limitQueue)
		}
		q.limitQueues[k] = lq
	}
	return lq
}

// setBound sets the queue bound of lq to that of the rejection d. Waiters that joined before the bound was known and
// exceed it are rejected, the newest first. setBound reports whether w is one of them.
func (q *Queue) setBound(lq *limitQueue, d throttle.Decision, w *waiter) (rejected bool) {
	prev := lq.bound
	if lq.bound = d.QueueBound; lq.bound == prev || !lq.overBound() {
		return false
	}
	waiting := q.waitersOf(lq)
	slices.SortFunc(waiting, func(a, b *waiter) int { return cmp.Compare(b.ticket.arrival, a.ticket.arrival) })
	for _, x := range waiting {
		switch {
		case !lq.overBound():
		case x.isWaiting():
			rejected = rejected || x == w
			q.reject(x, &throttle.RejectedError{Key: lq.key.key, Decision: d})
		default: // its limiters are being asked: it may not have to wait
			x.class.checksBounds = true
		}
	}
	return rejected
}

func (lq *limitQueue) overBound() bool { return lq.bound != 0 && lq.waitingUnits > max(lq.bound, 0) }

// checkBounds returns an error if w, which has just joined, exceeds a queue bound.
func (q *Queue) checkBounds(w *waiter) error {
	for i := range w.class.entries {
		if lq := w.class.entries[i].limitQueue; lq.overBound() {
			return q.rejectedError(lq, nil)
		}
	}
	return nil
}

// addWaiting adds sign times w to the waiters, and its units to the waitingUnits, of its limits.
func (w *waiter) addWaiting(sign int64) {
	for i := range w.class.entries {
		e := &w.class.entries[i]
		e.limitQueue.waiting += int(sign)
		e.limitQueue.waitingUnits += sign * e.units(w.ticket)
	}
}
