package queue

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"

	"github.com/heed-go/heed/internal/indexheap"
	"github.com/heed-go/heed/internal/ticks"
)

// A class is all waiters of one tenant that need the same limits. Only its head, the first
// in the order of byPriority, asks them. When a limit rejects the head, the whole class
// waits at that limit; the head then asks again, and may be rejected by another limit.
type class struct {
	key          classKey
	waiters      indexheap.Heap[*waiter, byPriority] // never empty while Queue.mu is not held
	entries      []queueEntry                        // one for each limit
	since        int64                               // when it was made: it has had waiters since then
	newest       int64                               // latest arrival of its waiters since then
	mixed        bool                                // its waiters have different priorities, or had since it was made
	blockedAt    *queueEntry                         // the entry of the limit that rejected the head; nil: the head has not been rejected
	blockedSince int64                               // when the class began to wait there
	periodStart  int64                               // since when queueEntry.blockedTime is counted

	// At most one call to the limiters of a class is under way, without the lock: in the
	// goroutine of the caller if a limiter may block, else in the goroutine that released
	// the lock. While it is under way, the ticket of reserving belongs to that goroutine.
	nonBlocking   bool
	reserving     *waiter
	reserveTime   int64  // Claim.Now of the call
	reserveEvents uint64 // Queue.numEvents at the start of the call
	leaving       error  // why reserving leaves the class unless the call grants it; nil: it stays
	checksBounds  bool   // a queue bound became known during it, which its waiter may exceed

	// The head may be rejected by one limit after another, see updateReservation.
	estimated      bool   // the class waits because of an estimate
	newHead        bool   // the head has not been rejected yet
	yieldRound     uint64 // Queue.round when the class yielded last
	yields         int    // how often it has yielded in that round
	reservableWait int64  // longest wait at another limit that begins a reservation; never: any
	reservedUntil  int64  // 0: the class waits at blockedAt only
}

// A classKey holds the ids of the limitQueues of a class in ascending order, 8 bytes each, and the tenant.
type classKey struct{ limitIDs, tenant string }

// byPriority orders waiters by arrival, less Queue.Aging for each step of priority. Late ones
// come after the others, those with the most time left first; see demoteLate.
type byPriority struct{ aging int64 }

func (o byPriority) Less(a, b *waiter) bool {
	switch {
	case a.late && b.late:
		return a.deadline() > b.deadline()
	case a.late || b.late:
		return b.late
	}
	return o.isBefore(a.ticket, b.ticket)
}

// isBefore reports whether x goes before y if neither is late.
func (o byPriority) isBefore(x, y *Ticket) bool {
	if d := int64(x.Priority) - int64(y.Priority); d >= 0 {
		return ticks.Sub(x.arrival, y.arrival) < ticks.Mul(d, o.aging)
	}
	return !o.isBefore(y, x)
}

func (byPriority) SetIndex(w *waiter, i int) { w.classIndex = int32(i) }

// addWaiter adds w to its class, and asks the limiters if it becomes the head.
func (q *Queue) addWaiter(w *waiter, j join) error {
	q.dispatch()
	if q.closeCtx.Err() != nil || !w.renewed && q.numWaiting.Load() >= closedBit { // checked here, because dispatch may release the lock
		return ErrClosed
	}
	maxTotal := cmp.Or(q.MaxTotal, int(q.defaultMaxTotal.Load()))
	if n := int(q.numWaiting.Load()); !j.again && maxTotal > 0 && n >= maxTotal {
		return &FullError{Waiting: n, Max: maxTotal}
	}
	c := q.classOf(w.ticket)
	if n := c.waiters.Len(); !j.again && q.MaxPerClass > 0 && n >= q.MaxPerClass {
		return &FullError{Waiting: n, Max: q.MaxPerClass}
	}
	w.class, w.ticket.waited = c, time.Duration(cmp.Or(j.since, q.now))
	if !w.renewed {
		q.numWaiting.Add(1)
	}
	w.renewed = false
	q.setDeadline(w)
	w.addWaiting(1)
	if c.waiters.Len() > 0 && c.waiters.First().ticket.Priority != w.ticket.Priority {
		q.mix(c)
	}
	c.newest = max(c.newest, w.ticket.arrival)
	c.waiters.Push(w)
	if w.classIndex == 0 {
		q.headChanged(c)
		q.tryHead(c)
	}
	switch {
	case j.again:
	case c.reserving == w:
		c.checksBounds = true
	case w.isWaiting():
		if err := q.checkBounds(w); err != nil {
			q.reject(w, err)
		}
	}
	return nil
}

func (q *Queue) removeWaiter(w *waiter) {
	c, t := w.class, w.ticket
	first := w.classIndex == 0
	if longest := c.longestWait(int64(t.waited), q.now); longest != nil {
		t.longestWait = longest
	}
	t.waited = time.Duration(q.now) - t.waited
	q.removeDeadline(w)
	w.setLate(false)
	w.addWaiting(-1)
	c.waiters.Remove(int(w.classIndex))
	q.uncount()
	switch {
	case c.waiters.Len() == 0:
		q.removeClass(c)
	case first:
		q.headChanged(c)
	}
}

// uncount removes one from the number of waiters, and ends Drain with the last one.
func (q *Queue) uncount() {
	if q.numWaiting.Add(-1) == closedBit {
		close(q.drained)
	}
}

// headChanged moves c to its new position in the limitQueue of blockedAt, and ends the
// reservation of the previous head.
func (q *Queue) headChanged(c *class) {
	c.newHead = true
	if c.blockedAt != nil {
		q.reorder(c.blockedAt)
	}
	q.endReservation(c)
}

// blockAt lets c wait at e, and with a reservation also at its other limits.
func (q *Queue) blockAt(c *class, e *queueEntry) {
	c.addBlockedTime(q.now)
	c.blockedAt = e
	q.place(c)
}

// endReservation lets c wait only at the limit that rejected its head.
func (q *Queue) endReservation(c *class) {
	if c.reservedUntil != 0 {
		c.reservedUntil = 0
		q.place(c)
	}
}

// place adds c to the limitQueues in which it has to wait, and removes it from the others.
func (q *Queue) place(c *class) {
	for i := range c.entries {
		if e := &c.entries[i]; e == c.blockedAt || c.reservedUntil != 0 {
			q.insert(e)
		} else {
			q.remove(e)
		}
	}
}

// addBlockedTime adds the time since the last call to the entry at which c waits.
func (c *class) addBlockedTime(now int64) {
	if c.blockedAt != nil {
		c.blockedAt.blockedTime += now - c.blockedSince
	}
	c.blockedSince = now
}

// longestWait returns approximately the limit that c waited for longest since a waiter joined; nil if c never waited.
// Times are counted per class, over the current and the previous period, and not per waiter.
func (c *class) longestWait(joined, now int64) *limitState {
	if c.addBlockedTime(now); joined >= c.periodStart {
		for i := range c.entries {
			c.entries[i].prevBlockedTime, c.entries[i].blockedTime = c.entries[i].blockedTime, 0
		}
		c.periodStart = now
	}
	if c.blockedAt == nil {
		return nil
	}
	worst := c.blockedAt
	for i := range c.entries {
		if e := &c.entries[i]; e.blockedTime+e.prevBlockedTime > worst.blockedTime+worst.prevBlockedTime {
			worst = e
		}
	}
	lq := worst.limitQueue
	if lq.before != nil && lq.changedAt-joined > now-lq.changedAt {
		return lq.before // one limiter may delay requests for several reasons, one after the other
	}
	return lq.last
}

// classOf returns the class of t. If there is none, it adds one without a waiter.
func (q *Queue) classOf(t *Ticket) *class {
	var queuesBuf [8]*limitQueue
	var idsBuf [8 * len(queuesBuf)]byte
	queues, ids := queuesBuf[:0], idsBuf[:0]
	for _, k := range t.limits {
		lq := q.limitQueueFor(k)
		at, found := slices.BinarySearchFunc(queues, lq, func(a, b *limitQueue) int { return cmp.Compare(a.id, b.id) })
		if !found {
			queues = slices.Insert(queues, at, lq)
		}
	}
	for _, lq := range queues {
		ids = binary.BigEndian.AppendUint64(ids, lq.id)
	}
	if c := q.classes[classKey{string(ids), t.Tenant}]; c != nil { // does not allocate
		return c
	}
	c := &class{
		key: classKey{string(ids), t.Tenant}, entries: make([]queueEntry, len(queues)),
		since: q.now, blockedSince: q.now, periodStart: q.now, nonBlocking: t.isNonBlocking(),
	}
	c.waiters.Order.aging = int64(cmp.Or(q.Aging, 10*time.Second))
	for i, lq := range queues {
		c.entries[i] = queueEntry{class: c, limitQueue: lq, tenantQueue: lq.tenantFor(t.Tenant), index: -1}
		lq.numClasses++
	}
	if q.classes == nil {
		q.classes = make(map[classKey]*class)
	}
	q.classes[c.key] = c
	return c
}

// removeClass removes c, which is empty, and the limitQueues that no other class needs.
func (q *Queue) removeClass(c *class) {
	delete(q.classes, c.key)
	c.blockedAt, c.reservedUntil = nil, 0
	q.place(c)
	for i := range c.entries {
		e := &c.entries[i]
		e.limitQueue.leave(e)
		if e.limitQueue.numClasses--; e.limitQueue.numClasses == 0 {
			delete(q.limitQueues, e.limitQueue.key)
		}
	}
	if len(q.classes) == 0 {
		q.classes, q.limitQueues = nil, nil // release the memory: a map does not shrink
	}
}

// units returns the units that t, a ticket of the class of e, needs of the limit.
func (e *queueEntry) units(t *Ticket) (n int64) {
	for i := range t.Demands {
		m := &t.Demands[i]
		for k := range numLimits(m) {
			if len(e.class.entries) == 1 || limitKeyOf(m, k) == e.limitQueue.key {
				n = ticks.Add(n, max(m.Cost, 1))
			}
		}
	}
	return n
}

func (c *class) entryAt(k limitKey) *queueEntry {
	for i := range c.entries {
		if c.entries[i].limitQueue.key == k {
			return &c.entries[i]
		}
	}
	panic("queue: the demands of a ticket were changed while it was queued")
}
