package queue

import (
	"context"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

const (
	// unknownRetryInterval is how often a limit is asked again if it does not state when
	// units will be available.
	unknownRetryInterval = int64(time.Second)

	// A limit that rejects more than maxBroken claims in a row, each made at the instant
	// that it stated itself, is asked at most once per brokenRetryInterval.
	maxBroken           = 8
	brokenRetryInterval = int64(time.Millisecond)

	// maxCatchUp bounds the correction for timers that fire late, usually by up to some
	// milliseconds: units are claimed as of the instant at which they were due, but at most
	// this long ago.
	maxCatchUp = int64(5 * time.Millisecond)

	// maxReservation is the longest time for which a ticket that needs several busy limits
	// may reserve one of them while it waits for another.
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
// Timers fire late. Claims are therefore made as of the retry time of each limit, so that
// waiters are granted at the full rate of the limit. After a long stall, such as a suspended
// process, claims are made as of at most maxCatchUp ago.
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
// sent least often, and the newest of these. The first one would be a poor sample, because those that the server rejects
// for what they are come first, as retries, its caller may be about to give up, and tests would use up its attempts. It
// returns nil for the first one, and after each rejection a sample only once.
func (q *Queue) sample(lq *limitQueue) (least *waiter) {
	if !lq.test || !lq.retryExact {
		return nil
	}
	lq.test = false
	for _, c := range q.classes {
		if c.reserving != nil || c.blockedAt == nil || c.blockedAt.limitQueue != lq {
			continue // at another limit it may not be its turn
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

// tryHead asks the limiters for the head of c. If it is rejected, c waits at the limit that
// rejected it.
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
		// Another class goes first at this limit: asking now would take its units. Both may yield to
		// each other at different limits, but each only once at each limit.
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
	q.setEstimated(c, d.Estimated)
	q.numRejections++
	e.limitQueue.lastRejection = q.numRejections
	c.resetBroken(e)
	if e.limitQueue.broken > maxBroken {
		retryAt = max(retryAt, ticks.Add(q.now, brokenRetryInterval))
	}
	if s := (limitState{d.Policy, d.ServerImposed, d.Estimated, perUnit(d)}); *e.limitQueue.last != s {
		lq := e.limitQueue
		if s.name != lq.last.name {
			lq.before, lq.changedAt = lq.last, q.now
		}
		lq.last = &limitState{s.name, s.serverImposed, s.estimated, s.perUnit}
	}
	if q.setBound(e.limitQueue, d, w) {
		return
	}
	q.updateReservation(c, e, retryAt)
	if q.blockAt(c, e); e.limitQueue.first() == e {
		q.schedule(e.limitQueue, retryAt, exact)
		e.limitQueue.test = d.Test
	} else {
		q.endReservation(c)
	}
	expected, known := q.expectedTime(d)
	if d.ServerImposed && d.Expected > 0 && known && expected-e.limitQueue.announcedRetryAt > int64(time.Second) { // checking all waiters costs O(n)
		e.limitQueue.announcedRetryAt = expected
		q.rejectHopeless(e.limitQueue, d)
	}
}

// rejectHopeless rejects all waiters that need lq and cannot wait until it grants after the
// rejection d, without waiting until they are heads.
func (q *Queue) rejectHopeless(lq *limitQueue, d throttle.Decision) {
	for _, w := range q.waitersOf(lq) {
		if w == w.class.reserving {
			continue
		}
		if err := q.cannotWait(w, lq.key.key, d); err != nil {
			q.reject(w, err)
		}
	}
}

// updateReservation decides whether c, whose head was rejected at e, also waits at its other
// limits, so that no class behind it can take their units. That is a reservation.
//
// Without reservations, a ticket that needs two busy limits would rarely find both open:
// while it waits for one, other classes take the units of the other. A reservation begins
// when the head has been rejected by one limit and then by another. The wait must be at
// most maxReservation, and at most as long as the wait before it unless the head has been
// rejected by alternating limits more than once. It ends after maxReservation, and when another
// class goes first at the limit that the class waits for.
func (q *Queue) updateReservation(c *class, e *queueEntry, retryAt int64) {
	wait := retryAt - q.now
	sameLimit := c.blockedAt == e && !c.newHead         // retried at the same limit
	if c.blockedAt != nil && !sameLimit && !c.newHead { // rejections of the previous head do not count
		c.bounces++
	}
	c.newHead = false
	switch {
	case c.reservedUntil != 0 && retryAt > c.reservedUntil:
		c.reservedUntil, c.bounces = 0, 0
	case c.reservedUntil == 0 && !sameLimit && wait <= maxReservation && (c.bounces > 1 || c.bounces == 1 && wait <= c.lastWait):
		c.reservedUntil = ticks.Add(q.now, maxReservation)
	}
	c.lastWait = wait
}

// resetBroken records that the limit at which c waited has not rejected its head, unless it
// is the limit of e.
func (c *class) resetBroken(e *queueEntry) {
	if c.blockedAt != nil && c.blockedAt != e {
		c.blockedAt.limitQueue.broken = 0
	}
}

// retryTime returns when to ask again after the rejection d, and whether d stated that time.
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

// expectedTime returns when the limit that made the rejection d is expected to grant the claim, and
// whether d stated that.
func (q *Queue) expectedTime(d throttle.Decision) (at int64, known bool) {
	d.Wait = max(d.Wait, d.Expected)
	return q.retryTime(d)
}

// cannotWait returns an error if w cannot wait until the limit that made the rejection d is expected to grant it.
func (q *Queue) cannotWait(w *waiter, key string, d throttle.Decision) error {
	d.Wait = max(d.Wait, d.Expected)
	switch retryAt, known := q.retryTime(d); {
	case d.Wait == throttle.Forever:
		return &throttle.RejectedError{Key: key, Decision: d}
	case !known, d.ServerImposed && d.Expected == 0: // what the limit is based on is being tested, and may prove to be wrong at any time
		return nil
	case retryAt > q.maxWaitEnd(w):
		return &throttle.RejectedError{Key: key, Decision: d}
	case w.ctxDeadline != never && retryAt > q.now && retryAt-q.now >= w.ctxDeadline-q.realNow(),
		w.ticket.Latency <= 0 && d.Per > 0 && !d.ServerImposed && q.isLate(w, retryAt):
		return &throttle.RejectedError{Key: key, Decision: d, Reason: context.DeadlineExceeded}
	case d.ServerImposed && w.ticket.MaxServerWait > 0 && retryAt-q.now > int64(w.ticket.MaxServerWait):
		return &throttle.RejectedError{Key: key, Decision: d}
	}
	return nil
}

// realNow returns q.now on the real clock, which the deadlines of contexts refer to.
func (q *Queue) realNow() int64 { return q.realAt(q.now) }

func (q *Queue) realAt(now int64) int64 {
	if q.Clock == nil {
		return now
	}
	return int64(time.Since(q.realStart))
}

// checkUpFront rejects w if one of its limits already states that it cannot grant w in time.
// The claim c has the fields that are common to all demands. The caller must not hold the
// lock.
func (q *Queue) checkUpFront(w *waiter, c throttle.Claim) {
	for i := range w.ticket.Demands {
		m := &w.ticket.Demands[i]
		if m.Limiter == nil || !m.Limiter.Traits().NonBlocking {
			continue
		}
		c.Key, c.Cost, c.DryRun = m.Key, m.Cost, true
		d, err := m.Limiter.Reserve(context.Background(), c)
		if err == nil && d.OK {
			continue
		}
		q.lock()
		waiting := w.isWaiting() && (err != nil || !q.setBound(q.limitQueues[limitKeyOf(m, d.Part())], d, w))
		if waiting && err == nil {
			err = q.cannotWait(w, m.Key, d)
		}
		if waiting && err != nil {
			q.reject(w, err)
		}
		q.unlock()
		if !waiting || err != nil {
			return
		}
	}
	q.checkAhead(w, c)
}
