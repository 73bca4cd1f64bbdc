package queue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A reserveResult is the result of asking the limiters of a ticket: a grant, the rejection of one demand, or an error.
type reserveResult struct {
	demand    int
	rejection throttle.Decision
	err       error
	aborted   error // why the call was ended before its result; nil: it was not
}

// A panicError carries a panic of a limiter to the goroutine that called Wait.
type panicError struct{ value any }

func (*panicError) Error() string { return "queue: a limiter panicked" }

var (
	errGoexit      = errors.New("queue: a limiter ended its goroutine")
	errAbandoned   = errors.New("queue: the context of the caller has ended")
	errWaitExpired = errors.New("queue: the wait is over")
)

// startReserve starts the call to the limiters for w. Until the call has ended, the class stays where it is, and w is
// neither granted nor rejected elsewhere.
func (q *Queue) startReserve(w *waiter) {
	c := w.class
	c.reserving, c.reserveTime, c.reserveEvents = w, q.claimTime, q.numEvents
	c.leaving, c.checksBounds = nil, false
	q.unscheduleBlocked(c)
	if c.nonBlocking {
		q.mu.Unlock()
		r := q.reserveLocal(w)
		q.lock()
		q.finishLocal(w, r)
		return
	}
	q.removeDeadline(w)
	w.signal()
}

// reserveLocal asks non-blocking limiters in the goroutine that has released the lock.
func (q *Queue) reserveLocal(w *waiter) (r reserveResult) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			r.err = &panicError{v}
			return
		}
		q.lock() // runtime.Goexit: the caller of reserveLocal does not continue
		q.finishLocal(w, reserveResult{err: errGoexit})
		q.unlock()
	}()
	r.demand, r.err = w.ticket.reserve(context.Background(), q.baseClaim(w, w.class.reserveTime), &r.rejection)
	returned = true
	return r
}

// baseClaim returns the fields that the claims of w have in common.
func (q *Queue) baseClaim(w *waiter, now int64) throttle.Claim {
	c := throttle.Claim{Now: q.time.At(now), Waits: true, Waited: max(time.Duration(now)-w.ticket.waited, 0)}
	if w.ctxDeadline != never {
		c.Deadline = q.realStart.Add(time.Duration(w.ctxDeadline))
	}
	return c
}

// finishLocal processes the result of reserveLocal. The caller holds the lock.
func (q *Queue) finishLocal(w *waiter, r reserveResult) {
	if done, err := q.finishReserve(w, r); err != nil {
		w.fail(err)
	} else if done {
		w.signal()
	}
}

// countEvent returns the number of a new event. Events are compared with the start of a call to the limiters.
func (q *Queue) countEvent() uint64 {
	q.numEvents++
	return q.numEvents
}

// unscheduleBlocked removes the limit at which c waits from the schedule, if c is first there.
func (q *Queue) unscheduleBlocked(c *class) {
	if e := c.blockedAt; e != nil && e.limitQueue.first() == e {
		q.schedule(e.limitQueue, never, false)
	}
}

// retryHead tries the head of c again, which may have changed.
func (q *Queue) retryHead(c *class) {
	if c.waiters.Len() == 0 {
		return
	}
	if c.blockedAt == nil {
		q.blockAt(c, &c.entries[0])
	}
	if e := c.blockedAt; e.limitQueue.first() == e {
		q.schedule(e.limitQueue, q.claimTime, false)
	}
}

// reserveRemote asks the limiters of w in the goroutine of its caller and processes the result. It returns false if w
// continues to wait. If a limiter panics, w leaves its class.
func (q *Queue) reserveRemote(ctx context.Context, w *waiter) (done bool, err error) {
	returned := false
	defer func() {
		if !returned {
			q.lock()
			_, _ = q.finishReserve(w, reserveResult{err: errGoexit})
			q.unlock()
		}
	}()
	now, remaining := q.time.Read(time.Time{}), int64(never)
	if end := min(q.maxWaitEnd(w), w.latencyEnd(now, q.realAt(now))); end != never {
		remaining = ticks.Sub(end, now)
	}
	r := q.reserveBounded(ctx, w.ticket, q.baseClaim(w, w.class.reserveTime), remaining)
	if w.ticket.grant != nil && r.aborted != nil {
		w.ticket.Report(ctx, throttle.Feedback{Now: q.time.At(q.time.Read(time.Time{})), State: throttle.Unused})
	}
	returned = true
	q.lock()
	done, err = q.finishReserve(w, r)
	q.unlock()
	if done && err != errRenewed && ctx.Err() != nil {
		q.Report(ctx, w.ticket, throttle.Feedback{State: throttle.Unused})
		err = context.Cause(ctx)
	}
	return done, err
}

// finishReserve processes the result of the call to the limiters for w. It returns true if w
// has left its class, with a grant or with err. The caller holds the lock.
func (q *Queue) finishReserve(w *waiter, r reserveResult) (done bool, err error) {
	c, t := w.class, w.ticket
	q.claimTime = max(c.reserveTime, q.now-maxCatchUp)
	c.reserving = nil
	if err = r.err; r.aborted != nil || err == nil && t.grant == nil {
		err = cmp.Or(q.leaveError(w, r), err)
	}
	if err == nil && t.grant == nil && c.checksBounds {
		err = q.checkBounds(w)
	}
	switch done = err != nil || t.grant != nil; {
	case err != nil:
		q.wakeRolledBack(w, -1)
		q.removeRejected(w, err)
	case done:
		q.onGrant(w)
	default:
		if w.deadlineIndex < 0 {
			q.setDeadline(w)
		}
		outdated := c.waiters.First() != w || slices.ContainsFunc(c.entries, func(e queueEntry) bool {
			return e.limitQueue.lastChange > c.reserveEvents
		})
		q.wakeRolledBack(w, r.demand)
		if !outdated {
			q.onRejection(w, r.demand, r.rejection)
			return false, nil
		}
	}
	q.retryHead(c)
	return done, err
}

// wakeRolledBack schedules the limits that may have granted their demand of w before demand i was rejected: other
// tickets may have been rejected while w held these units.
func (q *Queue) wakeRolledBack(w *waiter, i int) {
	for j, lq := range q.limitQueuesOf(w.ticket) {
		switch {
		case j == i:
		case lq.lastRejection > w.class.reserveEvents:
			q.wakeLimit(lq)
		default:
			lq.lastChange = q.countEvent() // the results of calls under way are out of date
		}
	}
}

// reserveBounded asks the limiters of t with c, for at most remaining nanoseconds or until q is closed.
func (q *Queue) reserveBounded(ctx context.Context, t *Ticket, c throttle.Claim, remaining int64) (r reserveResult) {
	bounded, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(q.closeCtx, func() { cancel(ErrClosed) })()
	if remaining != never {
		defer time.AfterFunc(time.Duration(remaining), func() { cancel(errWaitExpired) }).Stop()
	}
	r.demand, r.err = t.reserve(bounded, c, &r.rejection)
	if bounded.Err() != nil && ctx.Err() == nil {
		r.aborted = context.Cause(bounded)
	}
	return r
}

// leaveError returns an error if w must leave its class after r, which is no grant.
func (q *Queue) leaveError(w *waiter, r reserveResult) error {
	leaving := w.class.leaving
	if leaving != nil && leaving != errRenewed {
		return leaving
	}
	passed, reason := q.deadlinePassed(w)
	switch {
	case r.aborted != nil && r.rejection == (throttle.Decision{}):
		return q.expiredError(w, reason)
	case passed || r.aborted != nil:
		return &throttle.RejectedError{Key: w.ticket.Demands[r.demand].Key, Decision: r.rejection, Reason: reason}
	}
	return leaving
}
