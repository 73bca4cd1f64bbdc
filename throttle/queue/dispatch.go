package queue

import (
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

const (
	// unknownRetryInterval is how often a limit is asked again if it does not state when units will be available.
	unknownRetryInterval = int64(time.Second)

	// A limit that rejects more than maxBroken claims in a row, each at the instant that it
	// stated, is asked at most once per brokenRetryInterval.
	maxBroken           = 8
	brokenRetryInterval = int64(time.Millisecond)

	// maxCatchUp bounds the correction for timers that fire late, usually by up to some milliseconds, see dispatch.
	maxCatchUp = int64(5 * time.Millisecond)

	// maxReservation is the longest time of a reservation, see updateReservation.
	maxReservation = int64(time.Second)
)

// lock acquires mu and reads the clock.
func (q *Queue) lock() {
	q.mu.Lock()
	q.now = q.time.Read(time.Time{})
	q.claimTime = q.now
}

// unlock processes all events that are due, sets the timer and releases mu.
func (q *Queue) unlock() {
	q.dispatch()
	for q.Clock != nil && q.nextEvent() <= q.now { // a mock Clock fires no timer until it is advanced
		q.dispatch()
	}
	q.timer.set(q, q.nextEvent())
	q.mu.Unlock()
}

// onTimer processes the events that are due. The timer calls it.
func (q *Queue) onTimer() {
	q.lock()
	q.timer.at = never
	q.unlock()
}

// nextEvent returns the time of the next event; never if none is scheduled.
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

// dispatch rejects the waiters whose deadline has passed, and retries the head at each limit
// whose retry time has come, in the order of these times.
//
// Timers fire late. Claims are therefore made as of the retry time of each limit, but at most
// maxCatchUp ago, so that waiters are granted at the full rate of the limit.
//
// The lock is released while limiters are asked. Events that become due meanwhile are left to
// other goroutines or to the timer, so that the loop ends.
func (q *Queue) dispatch() {
	q.round++
	q.rejectExpired(q.now - 1)
	for now := q.now; q.scheduled.Len() > 0 && q.scheduled.First().retryAt <= now; {
		lq := q.scheduled.First()
		q.claimTime = max(lq.retryAt, q.now-maxCatchUp)
		if lq.retryExact {
			lq.broken++ // resetBroken resets it unless the limit rejects this claim
		}
		if e := lq.first(); e.class.blockedAt == e {
			if w := q.sample(lq); w != nil {
				q.startReserve(w)
			} else {
				q.tryHead(e.class)
			}
		} else {
			q.schedule(lq, never, false) // a reservation: the first class waits at another limit
		}
	}
	q.claimTime = q.now
	q.rejectExpired(q.now) // last, because a waiter may be granted at its deadline
}

// sample returns the waiter to ask for if lq grants a test now: of those that wait at lq and have time, one that was
// sent least often, and the newest of these. The first one would be a poor sample: it may be a retry that the server
// rejects for what it is. sample returns nil for it, and after each rejection a sample only once.
func (q *Queue) sample(lq *limitQueue) (least *waiter) {
	if !lq.test || !lq.retryExact {
		return nil
	}
	lq.test = false
	for c := range lq.blocked { // at another limit it may not be the turn of a class
		if c.reserving != nil {
			continue
		}
		for _, w := range c.waiters.Items {
			if !q.isLate(w, q.now) && (least == nil || w.ticket.sent < least.ticket.sent ||
				w.ticket.sent == least.ticket.sent && w.ticket.arrival > least.ticket.arrival) {
				least = w
			}
		}
	}
	return least
}

// tryHead asks the limiters for the head of c. If it is rejected, c waits at the limit that rejected it.
func (q *Queue) tryHead(c *class) {
	if c.reserving != nil {
		q.unscheduleBlocked(c)
		return
	}
	q.demoteLate(c)
	if c.yieldRound != q.round {
		c.yieldRound, c.yields = q.round, 0
	}
	for i := range c.entries {
		// Another class goes first at this limit: asking now would take its units. Two classes may
		// yield to each other at different limits, but each only once at each limit.
		if e := &c.entries[i]; c.yields < len(c.entries) && e.mustYield() {
			c.yields++
			c.reservedUntil = 0
			q.blockAt(c, e)
			return
		}
	}
	q.startReserve(c.waiters.First())
}

// onGrant removes w, whose ticket was granted, and charges its tenant at each limit.
func (q *Queue) onGrant(w *waiter) {
	c, t := w.class, w.ticket
	c.resetBroken(nil)
	q.numGranted++
	for i := range c.entries {
		e := &c.entries[i]
		q.charge(e, e.share(t))
	}
	q.removeWaiter(w)
}

// onRejection lets the class of w wait at the limit that rejected demand i with d.
func (q *Queue) onRejection(w *waiter, i int, d throttle.Decision) {
	c, m := w.class, &w.ticket.Demands[i]
	retryAt, exact := q.retryTime(d)
	if err := q.cannotWait(w, m.Key, d); err != nil {
		q.reject(w, err)
		return
	}
	e := c.entryAt(limitKeyOf(m, d.Part()))
	lq := e.limitQueue
	q.setEstimated(c, d.Estimated)
	lq.lastRejection = q.countEvent()
	c.resetBroken(e)
	if lq.broken > maxBroken {
		retryAt = max(retryAt, ticks.Add(q.now, brokenRetryInterval))
	}
	if s := (limitState{d.Policy, d.ServerImposed, d.Estimated, perUnit(d)}); *lq.last != s {
		if s.name != lq.last.name {
			lq.before, lq.changedAt = lq.last, q.now
		}
		last := s // allocated only here
		lq.last = &last
	}
	if q.setBound(lq, d, w) {
		return
	}
	q.updateReservation(c, e, retryAt)
	if q.blockAt(c, e); lq.first() == e {
		q.schedule(lq, retryAt, exact)
		lq.test = d.Test
	} else {
		q.endReservation(c)
	}
	q.rejectHopeless(lq, d)
}

// updateReservation decides whether c, whose head was rejected at e, also waits at its other
// limits, so that no class behind it can take their units. Without such a reservation, a ticket
// that needs two busy limits would rarely find both open.
//
// A reservation begins when the head has been rejected by one limit and then by another. The wait must be at most
// maxReservation, and at most as long as the wait before it unless the head has been rejected by alternating limits
// more than once. It ends after maxReservation, and when another class goes first at the limit of the class.
func (q *Queue) updateReservation(c *class, e *queueEntry, retryAt int64) {
	switch wait := retryAt - q.now; {
	case c.newHead, c.reservedUntil != 0 && retryAt > c.reservedUntil: // earlier ones do not count
		c.newHead, c.reservedUntil, c.reservableWait = false, 0, wait
	case c.blockedAt == e: // retried at the same limit
		if c.reservableWait != never {
			c.reservableWait = wait
		}
	default:
		if c.reservedUntil == 0 && wait <= min(c.reservableWait, maxReservation) {
			c.reservedUntil = ticks.Add(q.now, maxReservation)
		}
		c.reservableWait = never
	}
}

// resetBroken records that the limit at which c waited has not rejected its head, unless it is the limit of e.
func (c *class) resetBroken(e *queueEntry) {
	if c.blockedAt != nil && c.blockedAt != e {
		c.blockedAt.limitQueue.broken = 0
	}
}

// A wakeTimer calls Queue.onTimer at one instant.
type wakeTimer struct {
	at    int64         // nanoseconds on Queue.time, or never
	timer *time.Timer   // with the system clock
	stop  chan struct{} // ends the goroutine that waits for the channel of Queue.Clock
}

func (t *wakeTimer) set(q *Queue, at int64) {
	switch {
	case at == t.at, q.Clock != nil && t.at < at && at < never: // it fires earlier and cannot be stopped
		return
	case q.Clock != nil:
		t.setOnClock(q, at)
	case at == never:
		t.timer.Stop()
	case t.timer == nil:
		t.timer = time.AfterFunc(time.Duration(at-q.now), q.onTimer)
	default:
		t.timer.Reset(time.Duration(at - q.now))
	}
	t.at = at
}

// setOnClock starts the goroutine that waits until at, instead of the previous one. Never starts none.
func (t *wakeTimer) setOnClock(q *Queue, at int64) {
	if t.stop != nil {
		close(t.stop)
		t.stop = nil
	}
	if at == never {
		return
	}
	stop := make(chan struct{})
	t.stop = stop
	after := q.Clock.After(time.Duration(at - q.now))
	go func() {
		select {
		case <-after:
			q.onTimer()
		case <-stop:
		}
	}()
}
