package queue

import (
	"context"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A deadline is the instant at which a waiter leaves its queue without a grant.
type deadline struct {
	at     int64 // on the clock of the Queue
	waiter *waiter
}

type byDeadline struct{}

func (byDeadline) Less(a, b deadline) bool    { return a.at < b.at }
func (byDeadline) SetIndex(d deadline, i int) { d.waiter.deadlineIndex = int32(i) }

// addDeadline makes s leave its queue at the end of MaxWait, when an estimate has held it
// for Ticket.MaxServerWait, or Ticket.Latency before the deadline of its context. A deadline without a Latency needs no entry, as the
// context itself ends that wait.
func (q *Queue) addDeadline(w *waiter) {
	if at := min(q.maxWaitEnd(w), q.latencyEnd(w), w.estimateEnd()); at != never {
		q.deadlines.Push(deadline{at, w})
	}
}

// removeDeadline removes what addDeadline added.
func (q *Queue) removeDeadline(w *waiter) {
	if w.deadlineIndex >= 0 {
		q.deadlines.Remove(int(w.deadlineIndex))
	}
}

// maxWaitEnd returns when s has been in its queue for MaxWait.
func (q *Queue) maxWaitEnd(w *waiter) int64 {
	if q.MaxWait <= 0 {
		return never
	}
	return ticks.Add(int64(w.ticket.waited), int64(q.MaxWait))
}

// estimateEnd returns when an estimate has held s for Ticket.MaxServerWait; never if no
// estimate holds it.
func (w *waiter) estimateEnd() int64 {
	if !w.class.estimated || w.ticket.MaxServerWait <= 0 {
		return never
	}
	return ticks.Add(int64(w.ticket.waited), int64(w.ticket.MaxServerWait))
}

// setEstimated notes whether l waits because of an estimate.
func (q *Queue) setEstimated(c *class, estimated bool) {
	if c.estimated == estimated {
		return
	}
	c.estimated = estimated
	for i := 0; estimated && i < c.waiters.Len(); i++ {
		if w := c.waiters.Items[i]; w != c.reserving && w.ticket.MaxServerWait > 0 {
			q.removeDeadline(w)
			q.addDeadline(w)
		}
	}
}

// latencyEnd returns when a grant comes too late for s because of Ticket.Latency.
func (q *Queue) latencyEnd(w *waiter) int64 {
	return latencyEnd(w, q.now, q.realNow())
}

// latencyEnd returns the same as of now, which is real on the clock of contexts.
func latencyEnd(w *waiter, now, realNow int64) int64 {
	if w.ticket.Latency <= 0 || w.ctxDeadline == never {
		return never
	}
	return ticks.Add(now, ticks.Sub(w.ctxDeadline, realNow))
}

// rejectExpired refuses the waiters whose deadline has come. If Clock runs faster than the
// clock of contexts, the deadline of a context is later on Clock than it was thought
// to be when s joined: it is then moved.
func (q *Queue) rejectExpired() {
	for q.deadlines.Len() > 0 && q.deadlines.First().at <= q.now {
		w := q.deadlines.First().waiter
		if w.class.reserving == w { // what asks for it looks at its deadline after that
			q.removeDeadline(w)
			continue
		}
		if passed, reason := q.deadlinePassed(w); passed {
			q.reject(w, q.expiredError(w, reason))
			continue
		}
		q.removeDeadline(w)
		q.addDeadline(w)
	}
}

// deadlinePassed reports whether the deadline of s has come, and returns throttle.RefusedError.Reason.
func (q *Queue) deadlinePassed(w *waiter) (passed bool, reason error) {
	if q.latencyEnd(w) <= q.now {
		return true, context.DeadlineExceeded
	}
	return min(q.maxWaitEnd(w), w.estimateEnd()) <= q.now, nil
}

// expiredError returns the error for s, which waited too long. It names the limit that s
// waited for.
func (q *Queue) expiredError(w *waiter, reason error) error {
	if e := w.class.blockedAt; e != nil {
		refused := q.refusedError(e.limitQueue, reason)
		refused.Decision.ServerImposed, refused.Decision.Estimated = w.class.estimated, w.class.estimated
		return refused
	}
	return &throttle.RefusedError{Decision: throttle.Decision{At: q.time.At(q.now)}, Reason: reason}
}

// refusedError returns an error that names the limit of g.
func (q *Queue) refusedError(lq *limitQueue, reason error) *throttle.RefusedError {
	e := &throttle.RefusedError{Key: lq.key.key, Decision: throttle.Decision{At: q.time.At(q.now), Policy: *lq.policy}, Reason: reason}
	if lq.retryExact {
		e.Decision.Wait = time.Duration(max(lq.retryAt-q.now, 0))
	}
	return e
}
