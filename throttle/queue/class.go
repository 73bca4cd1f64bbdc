package queue

import (
	"cmp"
	"slices"
	"time"

	"github.com/heed-go/heed/internal/indexheap"
	"github.com/heed-go/heed/internal/ticks"
)

// A class is everybody of one tenant who must pass the same gates. Its first stands
// for all: it is parked at the gate that refused it, and the line moves from gate
// to gate with it.
type class struct {
	key          classKey
	waiters      indexheap.Heap[*waiter, byPriority] // never empty while Queue.mu is free
	entries      [maxLimitQueues]queueEntry          // one for each of its gates
	numEntries   int                                 // how many of places there are
	blockedAt    *queueEntry                         // the gate that must open for the first; nil: not asked yet
	blockedSince int64                               // when it was parked there
	periodStart  int64                               // when queueEntry.blockedTime began to be counted

	// There is one question at a time, asked without the lock: by the caller itself
	// where limits may do I/O, else by the goroutine that brings news. asking is the waiter: its
	// ticket then belongs to the goroutine that asks.
	nonBlocking       bool
	reserving         *waiter
	reserveTime       int64  // the instant that is asked for
	reserveGeneration uint64 // of its gates when it was asked
	reserveRefusals   uint64 // Queue.numRefusals when it was asked
	abandoned         bool   // the context of asking has ended while it is asked for

	// The first can be sent from one gate to the next and back, see patient.
	estimated     bool // it waits because of an estimate
	newHead       bool // its first has not been refused yet
	bounces       int
	lastWait      int64
	reservedUntil int64 // 0: it holds no places but where it is parked
}

// A classKey names the gates of a line, in the order of their ids, and the tenant.
type classKey struct {
	limitIDs [maxLimitQueues]uint64
	tenant   string
}

// byPriority orders tickets by when they came, less the head start of their priority.
type byPriority struct{ aging int64 }

func (o byPriority) Less(a, b *waiter) bool {
	x, y := a.ticket, b.ticket
	if x.Priority == y.Priority {
		return x.arrival < y.arrival
	}
	return o.rank(x) < o.rank(y)
}

func (o byPriority) rank(t *Ticket) int64 {
	return ticks.Sub(t.arrival, ticks.Mul(int64(t.Priority), o.aging))
}

func (byPriority) SetIndex(w *waiter, i int) { w.classIndex = int32(i) }

// addWaiter puts s into its line and, if it is the first there, asks for it.
func (q *Queue) addWaiter(w *waiter, retry bool) error {
	if q.numWaiting.Load() >= closedBit {
		return ErrClosed
	}
	q.dispatch()
	if n, limit := int(q.numWaiting.Load()), q.maxTotal(); !retry && limit > 0 && n >= limit {
		return &FullError{Waiting: n, Max: limit}
	}
	c := q.classOf(w.ticket)
	if n := c.waiters.Len(); !retry && q.MaxPerClass > 0 && n >= q.MaxPerClass {
		return &FullError{Waiting: n, Max: q.MaxPerClass}
	}
	if w.class = c; w.ticket.waited == 0 {
		w.ticket.waited = time.Duration(q.now)
	}
	q.numWaiting.Add(1)
	q.addDeadline(w)
	q.addWaitingUnits(w.ticket, 1)
	c.waiters.Push(w)
	if w.classIndex == 0 {
		q.headChanged(c)
		q.tryHead(c)
	}
	if !retry && w.isWaiting() {
		if err := q.checkBounds(w); err != nil {
			q.reject(w, err)
		}
	}
	return nil
}

// removeWaiter takes s out of its line.
func (q *Queue) removeWaiter(w *waiter) {
	c, t := w.class, w.ticket
	first := w.classIndex == 0
	t.longestWait = c.longestWait(int64(t.waited), q.now)
	t.waited = time.Duration(q.now) - t.waited
	q.removeDeadline(w)
	q.addWaitingUnits(t, -1)
	c.waiters.Remove(int(w.classIndex))
	if q.numWaiting.Add(-1) == closedBit {
		close(q.drained)
	}
	switch {
	case c.waiters.Len() == 0:
		q.removeClass(c)
	case first:
		q.headChanged(c)
	}
}

// headChanged puts l where its new first belongs. What the old one kept closed
// for itself is open again.
func (q *Queue) headChanged(c *class) {
	c.bounces, c.lastWait, c.reservedUntil, c.newHead = 0, 0, 0, true
	for i := range c.entries[:c.numEntries] {
		switch e := &c.entries[i]; {
		case e.tenantQueue == nil:
		case e == c.blockedAt:
			q.reorder(e)
		default:
			q.dequeue(e)
		}
	}
}

// blockAt lets l wait at p, and nowhere else unless it holds its places.
func (q *Queue) blockAt(c *class, e *queueEntry) {
	c.addBlockedTime(q.now)
	c.blockedAt = e
	e.enqueue()
	for i := range c.entries[:c.numEntries] {
		switch other := &c.entries[i]; {
		case other == e:
		case c.reservedUntil == 0:
			q.dequeue(other)
		case other.tenantQueue == nil:
			if other.enqueue(); other.limitQueue.first() == other {
				q.schedule(other.limitQueue, never, false)
			}
		}
	}
}

// addBlockedTime adds the time since l was parked to its gate's.
func (c *class) addBlockedTime(now int64) {
	if c.blockedAt != nil {
		c.blockedAt.blockedTime += now - c.blockedSince
	}
	c.blockedSince = now
}

// longestWait returns the name of the limit that l waited for longest while somebody who
// joined at the given time was in it; nil if it was never parked. A time a little
// longer is looked at, since nobody keeps a history: at most from when the first
// came who was in line together with it.
func (c *class) longestWait(joined, now int64) *string {
	if c.addBlockedTime(now); joined >= c.periodStart {
		for i := range c.entries[:c.numEntries] {
			c.entries[i].prevBlockedTime, c.entries[i].blockedTime = c.entries[i].blockedTime, 0
		}
		c.periodStart = now
	}
	if c.blockedAt == nil {
		return nil
	}
	worst := c.blockedAt
	for i := range c.entries[:c.numEntries] {
		if e := &c.entries[i]; e.blockedTime+e.prevBlockedTime > worst.blockedTime+worst.prevBlockedTime {
			worst = e
		}
	}
	return worst.limitQueue.policy
}

// classOf returns the line of t, a new one if there is none. A new line must get a
// member or be disbanded.
func (q *Queue) classOf(t *Ticket) *class {
	queues, n := q.limitQueuesOf(t)
	key := classKey{tenant: t.Tenant}
	for i, lq := range queues[:n] {
		key.limitIDs[i] = lq.id
	}
	c := q.classes[key]
	if c != nil {
		return c
	}
	c = &class{key: key, numEntries: n, blockedSince: q.now, periodStart: q.now, nonBlocking: t.isNonBlocking()}
	c.waiters.Order.aging = q.aging
	for i, lq := range queues[:n] {
		c.entries[i] = queueEntry{class: c, limitQueue: lq}
		lq.numClasses++
	}
	if q.classes == nil {
		q.classes = make(map[classKey]*class)
	}
	q.classes[key] = c
	return c
}

// limitQueuesOf returns the n gates that t must pass, in the order of their ids.
func (q *Queue) limitQueuesOf(t *Ticket) (queues [maxLimitQueues]*limitQueue, n int) {
	for i := range t.Demands {
		m := &t.Demands[i]
		for k := range numLimits(m) {
			lq := q.limitQueueFor(limitKeyOf(m, k))
			at, found := slices.BinarySearchFunc(queues[:n], lq, func(a, b *limitQueue) int { return cmp.Compare(a.id, b.id) })
			if !found {
				copy(queues[at+1:], queues[at:n])
				queues[at] = lq
				n++
			}
		}
	}
	return queues, n
}

// removeClass forgets l, which is empty, and the gates that it alone waited for.
func (q *Queue) removeClass(c *class) {
	if delete(q.classes, c.key); len(q.classes) == 0 {
		q.classes = nil // a map keeps the memory of its best days
	}
	for i := range c.entries[:c.numEntries] {
		e := &c.entries[i]
		q.dequeue(e)
		if e.limitQueue.numClasses--; e.limitQueue.numClasses == 0 {
			q.removeLimitQueue(e.limitQueue)
		}
	}
}

// entryAt returns the place of l at the gate k.
func (c *class) entryAt(k limitKey) *queueEntry {
	for i := range c.entries[:c.numEntries] {
		if c.entries[i].limitQueue.key == k {
			return &c.entries[i]
		}
	}
	panic("queue: the demands of a ticket were changed while it was queued")
}
