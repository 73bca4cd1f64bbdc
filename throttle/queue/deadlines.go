package queue

import (
	"context"
	"slices"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A deadline is the instant at which a waiter leaves its class without a grant.
type deadline struct {
	at     int64 // nanoseconds on Queue.time
	waiter *waiter
}

type byDeadline struct{}

func (byDeadline) Less(a, b deadline) bool    { return a.at < b.at }
func (byDeadline) SetIndex(d deadline, i int) { d.waiter.deadlineIndex = int32(i) }

// setDeadline schedules the rejection of w: after MaxWait, after an estimate has held it for Ticket.MaxServerWait, or at
// latencyEnd, whichever is first. Without a Latency the context ends the wait.
func (q *Queue) setDeadline(w *waiter) {
	q.removeDeadline(w)
	if at := min(q.maxWaitEnd(w), w.latencyEnd(q.now, q.realNow()), w.estimateEnd()); at != never {
		q.deadlines.Push(deadline{at, w})
	}
}

func (q *Queue) removeDeadline(w *waiter) {
	if w.deadlineIndex >= 0 {
		q.deadlines.Remove(int(w.deadlineIndex))
	}
}

// maxWaitEnd returns when w has waited for MaxWait; never if MaxWait is not set.
func (q *Queue) maxWaitEnd(w *waiter) int64 { return ticks.Add(int64(w.ticket.waited), q.maxWait()) }

// estimateEnd returns when w has waited for Ticket.MaxServerWait; never if w is not held by an estimate.
func (w *waiter) estimateEnd() int64 {
	if !w.class.estimated || w.ticket.MaxServerWait <= 0 {
		return never
	}
	return ticks.Add(int64(w.ticket.waited), int64(w.ticket.MaxServerWait))
}

// setEstimated records whether c waits because of an estimate.
func (q *Queue) setEstimated(c *class, estimated bool) {
	if c.estimated == estimated {
		return
	}
	c.estimated = estimated
	for i := 0; estimated && i < c.waiters.Len(); i++ {
		if w := c.waiters.Items[i]; w.ticket.MaxServerWait > 0 {
			q.setDeadline(w)
		}
	}
}

// latencyEnd returns when w leaves because a later grant leaves it less than Ticket.Latency, but not in the first half of
// its time: the latency may become shorter. Once its class has had waiters for as long as w can wait, others who have more
// time need the units, and it leaves when it has less than HighLatency, if that is in the second half of its time. It is
// now, which is realNow on the real clock.
func (w *waiter) latencyEnd(now, realNow int64) int64 {
	if w.ctxDeadline == never {
		return never
	}
	left, waited, end := ticks.Sub(w.deadline(), realNow), ticks.Sub(now, int64(w.ticket.waited)), int64(never)
	half := (left - waited) / 2
	if w.ticket.Latency > 0 {
		end = ticks.Add(now, max(left-int64(w.ticket.Latency), half))
	}
	if high := left - int64(w.ticket.HighLatency); w.ticket.HighLatency > 0 && high >= half {
		end = min(end, max(ticks.Add(now, high), ticks.Add(w.class.since, left+waited)))
	}
	return end
}

// rejectExpired rejects the waiters whose deadline is at most until, which is not after now. If Clock runs faster than
// the real clock, the deadline of a context is later on Clock than setDeadline computed; it is then set again.
func (q *Queue) rejectExpired(until int64) {
	for q.deadlines.Len() > 0 && q.deadlines.First().at <= until {
		w := q.deadlines.First().waiter
		passed, reason := q.deadlinePassed(w)
		switch {
		case w.class.reserving == w:
			q.removeDeadline(w) // finishReserve checks the deadline
		case passed:
			q.reject(w, q.expiredError(w, reason))
		default:
			q.setDeadline(w)
		}
	}
}

// deadlinePassed reports whether the deadline of w has passed, and returns the Reason for the RejectedError.
func (q *Queue) deadlinePassed(w *waiter) (passed bool, reason error) {
	if w.latencyEnd(q.now, q.realNow()) <= q.now {
		return true, context.DeadlineExceeded
	}
	return min(q.maxWaitEnd(w), w.estimateEnd()) <= q.now, nil
}

// expiredError returns the error for w, whose deadline has passed. It names the limit that w waited for.
func (q *Queue) expiredError(w *waiter, reason error) error {
	if e := w.class.blockedAt; e != nil {
		rejected := q.rejectedError(e.limitQueue, reason)
		rejected.Decision.ServerImposed = rejected.Decision.ServerImposed || w.class.estimated
		rejected.Decision.Estimated = w.class.estimated
		return rejected
	}
	return &throttle.RejectedError{Decision: throttle.Decision{At: q.time.At(q.now)}, Reason: reason}
}

// rejectedError returns an error that names the limit of lq.
func (q *Queue) rejectedError(lq *limitQueue, reason error) *throttle.RejectedError {
	return &throttle.RejectedError{Key: lq.key.key, Reason: reason, Decision: throttle.Decision{
		At: q.time.At(q.now), Policy: lq.last.name, ServerImposed: lq.last.serverImposed, Wait: q.grantAfter(lq),
	}}
}

// demoteLate moves waiters at the head of c that have less than Ticket.HighLatency left behind the others, each once.
// Without that, callers that ask for more than the limit admits are all granted with hardly any time left. A class
// with several priorities keeps its order, and so does one whose waiters can all be served.
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

// isScarce reports whether so many wait for the limit of w that the last of them, with as much
// time in all as w, would have less left when it is granted in the order of arrival than the
// mean of Ticket.Latency and HighLatency.
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

// realNow returns q.now on the real clock, which the deadlines of contexts refer to.
func (q *Queue) realNow() int64 { return q.realAt(q.now) }

func (q *Queue) realAt(now int64) int64 {
	if q.Clock == nil {
		return now
	}
	return int64(time.Since(q.realStart))
}
