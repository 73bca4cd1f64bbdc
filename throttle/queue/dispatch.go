package queue

import (
	"context"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

const (
	// unknownRetryInterval is when a limit that does not know when it opens is asked again
	// if there is no news of it.
	unknownRetryInterval = int64(time.Second)

	// A limit that broke so many promises in a row is not asked more often than
	// at this pace.
	maxBroken           = 8
	brokenRetryInterval = int64(time.Millisecond)
)

// lock takes the lock and reads the clock.
func (q *Queue) lock() {
	q.mu.Lock()
	q.now = q.time.Read(time.Time{})
	q.claimTime = q.now
}

// unlock does what is due and sets the alarm.
func (q *Queue) unlock() {
	q.dispatch()
	for q.Clock != nil && q.nextEvent() <= q.now { // another clock may need to be moved to fire
		q.dispatch()
	}
	q.timer.set(q, q.nextEvent())
	q.mu.Unlock()
}

// onTimer is called by the alarm.
func (q *Queue) onTimer() {
	q.lock()
	q.timer.at = never
	q.unlock()
}

// nextEvent returns when there is something to do.
func (q *Queue) nextEvent() int64 {
	next := int64(never)
	if q.scheduled.Len() > 0 {
		next = q.scheduled.First().retryAt
	}
	if q.deadlines.Len() > 0 {
		next = min(next, q.deadlines.First().at)
	}
	return next
}

// dispatch refuses the waiters whose deadline has come, and asks at every gate that is due, in the order in which they opened.
//
// Timers fire late. Claims are therefore made as of the instant at which the gate
// opened, one after another, so that a line moves at the full rate of its limit.
// After a long stall, as of a suspended process, no more than maxCatchUp is caught up.
//
// The lock is released while limiters are asked. What becomes due meanwhile is left to
// others, or to the alarm, so that no goroutine serves without end.
func (q *Queue) dispatch() {
	q.rejectExpired()
	for now := q.now; q.scheduled.Len() > 0 && q.scheduled.First().retryAt <= now; {
		lq := q.scheduled.First()
		q.claimTime = max(lq.retryAt, q.now-q.maxCatchUp)
		if lq.retryExact {
			lq.broken++ // until it proves true
		}
		if e := lq.first(); e.class.blockedAt == e {
			q.tryHead(e.class)
		} else {
			q.schedule(lq, never, false) // p keeps it closed while it waits elsewhere
		}
	}
	q.claimTime = q.now
}

// tryHead asks for the first of l. It is called, or l waits for the limit that
// refused it.
func (q *Queue) tryHead(c *class) {
	w := c.waiters.First()
	if c.reserving != nil {
		q.unscheduleBlocked(c)
		return
	}
	for i := range c.entries[:c.numEntries] {
		// Others who go first wait here already: to ask would take their units.
		if e := &c.entries[i]; e.mustYield() {
			c.reservedUntil = 0
			q.blockAt(c, e)
			return
		}
	}
	q.startReserve(w)
}

// onGrant takes s, which got its units, out of its line.
func (q *Queue) onGrant(w *waiter) {
	c, t := w.class, w.ticket
	c.resetBroken(nil)
	for i := range t.Demands {
		m := &t.Demands[i]
		for k := range numLimits(m) {
			q.charge(c.entryAt(limitKeyOf(m, k)), m.Cost, int64(t.Weight))
		}
	}
	q.removeWaiter(w)
}

// onRefusal parks the line of s at the limit that refused it as its demand i.
func (q *Queue) onRefusal(w *waiter, i int, d throttle.Decision) {
	c, m := w.class, &w.ticket.Demands[i]
	retryAt, exact := q.retryTime(d)
	if err := q.cannotWait(w, m.Key, d, retryAt, exact); err != nil {
		q.reject(w, err)
		return
	}
	e := c.entryAt(limitKeyOf(m, d.Part()))
	q.setEstimated(c, d.Estimated)
	q.numRefusals++
	e.limitQueue.lastRefusal = q.numRefusals
	c.resetBroken(e)
	if e.limitQueue.broken > maxBroken {
		retryAt = max(retryAt, ticks.Add(q.now, brokenRetryInterval))
	}
	if *e.limitQueue.policy != d.Policy {
		e.limitQueue.policy = &d.Policy
	}
	if q.setBound(e.limitQueue, d, w) {
		return
	}
	q.updateReservation(c, e, retryAt)
	if q.blockAt(c, e); e.limitQueue.first() == e {
		q.schedule(e.limitQueue, retryAt, exact)
	}
	if d.ServerImposed && exact && retryAt-e.limitQueue.announcedRetryAt > int64(time.Second) { // checking all waiters costs O(n)
		e.limitQueue.announcedRetryAt = retryAt
		q.rejectHopeless(e.limitQueue, d, retryAt)
	}
}

// rejectHopeless sends everybody home who must pass g and for whom it makes no sense to wait
// until it opens: they need not be first to be told.
func (q *Queue) rejectHopeless(lq *limitQueue, d throttle.Decision, retryAt int64) {
	var affected []*waiter
	for _, c := range q.classes {
		for i := range c.entries[:c.numEntries] {
			if c.entries[i].limitQueue == lq {
				affected = append(affected, c.waiters.Items...)
			}
		}
	}
	for _, w := range affected {
		if w == w.class.reserving {
			continue
		}
		if err := q.cannotWait(w, lq.key.key, d, retryAt, true); err != nil {
			q.reject(w, err)
		}
	}
}

// updateReservation decides whether l, whose first was refused at p, keeps its places at the
// other limits meanwhile, closed to those who come after it.
//
// A ticket that needs two busy limits would never find both open: while it waits
// for one, others take the other. To be fair to them it keeps its places only if
// it was sent from one limit to the next, if it costs them less than what was
// waited before or this was tried already, and for no longer than MaxReservation.
func (q *Queue) updateReservation(c *class, e *queueEntry, retryAt int64) {
	wait := retryAt - q.now
	sameLimit := c.blockedAt == e && !c.newHead         // asked again because of news
	if c.blockedAt != nil && !sameLimit && !c.newHead { // where the waiter before it was refused says nothing of this one
		c.bounces++
	}
	c.newHead = false
	switch {
	case c.reservedUntil != 0 && retryAt > c.reservedUntil:
		c.reservedUntil, c.bounces = 0, 0
	case c.reservedUntil == 0 && !sameLimit && wait <= q.maxReservation && (c.bounces > 1 || c.bounces == 1 && wait <= c.lastWait):
		c.reservedUntil = ticks.Add(q.now, q.maxReservation)
	}
	c.lastWait = wait
}

// resetBroken notes that the limit which l was parked at let it through, unless it is
// the one at p.
func (c *class) resetBroken(e *queueEntry) {
	if c.blockedAt != nil && c.blockedAt != e {
		c.blockedAt.limitQueue.broken = 0
	}
}

// retryTime returns when to ask again after d.
func (q *Queue) retryTime(d throttle.Decision) (retryAt int64, exact bool) {
	if d.Wait <= 0 {
		return ticks.Add(q.now, unknownRetryInterval), false
	}
	at := q.claimTime
	if !d.At.IsZero() {
		at = q.time.Read(d.At)
	}
	return ticks.Add(at, int64(d.Wait)), true
}

// cannotWait returns an error if it makes no sense for s to wait.
func (q *Queue) cannotWait(w *waiter, key string, d throttle.Decision, retryAt int64, exact bool) error {
	switch {
	case d.Wait == throttle.Forever:
		return &throttle.RefusedError{Key: key, Decision: d}
	case !exact:
		return nil
	case retryAt > q.maxWaitEnd(w):
		return &throttle.RefusedError{Key: key, Decision: d}
	case w.ctxDeadline != never && retryAt > q.now && retryAt-q.now >= w.ctxDeadline-q.realNow():
		return &throttle.RefusedError{Key: key, Decision: d, Reason: context.DeadlineExceeded}
	case d.ServerImposed && w.ticket.MaxServerWait > 0 && retryAt-q.now > int64(w.ticket.MaxServerWait):
		return &throttle.RefusedError{Key: key, Decision: d}
	}
	return nil
}

// realNow returns now on the real clock, on which contexts end.
func (q *Queue) realNow() int64 { return q.realAt(q.now) }

func (q *Queue) realAt(now int64) int64 {
	if q.Clock == nil {
		return now
	}
	return int64(time.Since(q.realStart))
}

// checkUpFront refuses s if its limits say already that it cannot be granted in time. What
// others in line take is left out, as they may go away. What all claims of s have in
// common is in c. It is called without the lock.
func (q *Queue) checkUpFront(w *waiter, c throttle.Claim) {
	for i := range w.ticket.Demands {
		m := &w.ticket.Demands[i]
		if m.Limiter == nil || !throttle.IsNonBlocking(m.Limiter) {
			continue
		}
		c.Key, c.Cost, c.DryRun = m.Key, m.Cost, true
		d, err := m.Limiter.Reserve(context.Background(), c)
		if err == nil && d.OK {
			continue
		}
		q.lock()
		waiting := w.isWaiting()
		if waiting && err == nil {
			if lq := q.limitQueues[limitKeyOf(m, d.Part())]; lq != nil && boundOf(d) > 0 {
				waiting = !q.setBound(lq, d, w)
			}
		}
		if waiting && err == nil {
			retryAt, exact := q.retryTime(d)
			err = q.cannotWait(w, m.Key, d, retryAt, exact)
		}
		if waiting && err != nil {
			q.reject(w, err)
		}
		q.unlock()
		if !waiting || err != nil {
			return
		}
	}
}
