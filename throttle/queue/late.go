package queue

import (
	"slices"

	"github.com/heed-go/heed/internal/ticks"
)

// demoteLate moves waiters at the head of c that have less than Ticket.HighLatency left behind
// the others: a unit goes to a waiter that has enough time, or else to the one that has most.
// Without that, callers that ask for more than the limit admits are all granted with hardly any
// time left. Each waiter is moved once. A class with several priorities keeps its order, and so
// does one whose waiters can all be served.
func (q *Queue) demoteLate(c *class) {
	head := c.waiters.First()
	for w := head; !c.mixed && !w.late && q.isLate(w, q.now) && q.isScarce(w); w = c.waiters.First() {
		w.setLate(true)
		c.waiters.Fix(0)
	}
	if c.waiters.First() != head {
		q.headChanged(c)
	}
}

// isLate reports whether w has less than Ticket.HighLatency left at the given time.
func (q *Queue) isLate(w *waiter, at int64) bool {
	return w.ctxDeadline != never && ticks.Sub(q.timeLeft(w), at-q.now) < int64(w.ticket.HighLatency)
}

// timeLeft returns the time until the deadline of w, which has one.
func (q *Queue) timeLeft(w *waiter) int64 { return ticks.Sub(w.deadline(), q.realNow()) }

// isScarce reports whether so many wait for the limit of w that the last of them would be granted
// too late in the order of their arrival: with less time left than the mean of Ticket.Latency and
// HighLatency, if it has as much time in all as w.
func (q *Queue) isScarce(w *waiter) bool {
	e := w.class.blockedAt
	if e == nil {
		return false
	}
	lq := e.limitQueue
	wait := ticks.Mul(lq.waitingUnits, int64(lq.last.perUnit))
	if wait == 0 {
		wait = ticks.Mul(int64(lq.waiting), lq.grantInterval)
	}
	all := ticks.Add(q.timeLeft(w), ticks.Sub(q.now, int64(w.ticket.waited)))
	return ticks.Sub(all, wait) < int64(w.ticket.Latency/2+w.ticket.HighLatency/2)
}

// setLate sets whether w is late. The caller restores its position in its class.
func (w *waiter) setLate(late bool) {
	if w.late == late {
		return
	}
	sign := int64(1)
	if !late {
		sign = -1
	}
	w.late = late
	for i := range w.class.entries {
		e := &w.class.entries[i]
		e.limitQueue.lateUnits += sign * e.units(w.ticket)
	}
}

// mix records that c has waiters of different priorities, so that none of them is late.
func (q *Queue) mix(c *class) {
	c.mixed = true
	head := c.waiters.First()
	for _, w := range slices.Clone(c.waiters.Items) {
		w.setLate(false)
		c.waiters.Fix(int(w.classIndex))
	}
	if c.waiters.First() != head {
		q.headChanged(c)
	}
}
