package queue

import (
	"context"
	"errors"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// isNonBlocking reports whether all limiters of t are throttle.NonBlocking.
func (t *Ticket) isNonBlocking() bool {
	for i := range t.Demands {
		if l := t.Demands[i].Limiter; l != nil && !throttle.IsNonBlocking(l) {
			return false
		}
	}
	return true
}

// A reserveResult is what the limits of a ticket answered: it was granted, or its demand i was
// refused, or there was an error.
type reserveResult struct {
	demand  int
	refusal throttle.Decision
	err     error
	aborted error // why the question was ended before its answer; nil: it was not
}

// A panicError is a panic of a limiter, on its way to the caller it was asked for.
type panicError struct{ value any }

func (*panicError) Error() string { return "queue: a limiter panicked" }

var (
	errGoexit      = errors.New("queue: a limiter ended its goroutine")
	errAbandoned   = errors.New("queue: the context of the caller has ended")
	errWaitExpired = errors.New("queue: the wait is over")
)

// startReserve begins to ask for s, the first of its line. Until there is an answer the line
// stays where it is, and s can neither be granted nor refused by others.
func (q *Queue) startReserve(w *waiter) {
	c := w.class
	c.reserving, c.reserveTime, c.reserveGeneration, c.reserveRefusals = w, q.claimTime, c.generation(), q.numRefusals
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

// reserveLocal asks limits that answer from memory, in the goroutine that brings news.
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
		q.lock() // runtime.Goexit: what called reserveLocal does not go on
		q.finishLocal(w, reserveResult{err: errGoexit})
		q.unlock()
	}()
	c := q.baseClaim(w.ticket, w.class.reserveTime)
	r.demand, r.err = w.ticket.reserve(context.Background(), c, &r.refusal)
	returned = true
	return r
}

// baseClaim returns what the claims of t have in common.
func (q *Queue) baseClaim(t *Ticket, now int64) throttle.Claim {
	return throttle.Claim{Now: q.time.At(now), Waits: true, Waited: max(time.Duration(now)-t.waited, 0)}
}

// finishLocal does what an answer from memory says. It is called with the lock.
func (q *Queue) finishLocal(w *waiter, r reserveResult) {
	c := w.class
	if r.err == nil && w.ticket.grant == nil && c.abandoned {
		r.err = errAbandoned
	}
	c.abandoned = false
	if done, err := q.finishReserve(w, r); err != nil {
		w.fail(err)
	} else if done {
		w.signal()
	}
}

// generation counts the news of the gates of l. An answer is out of date if there was
// some since the question.
func (c *class) generation() (n uint64) {
	for i := range c.entries[:c.numEntries] {
		n += c.entries[i].limitQueue.generation
	}
	return n
}

// unscheduleBlocked leaves alone the gate at which l is parked.
func (q *Queue) unscheduleBlocked(c *class) {
	if e := c.blockedAt; e != nil && e.limitQueue.first() == e {
		q.schedule(e.limitQueue, never, false)
	}
}

// retryHead asks for the first of l again, whichever that is now.
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

// reserveRemote asks for s in the goroutine of its caller, and does what the answer says. It
// reports false if s has to wait on.
func (q *Queue) reserveRemote(ctx context.Context, w *waiter) (done bool, err error) {
	r := q.callRemote(ctx, w)
	granted := w.ticket.grant != nil
	if granted && r.aborted != nil {
		w.ticket.Cancel(ctx, q.time.At(q.time.Read(time.Time{})))
		granted = false
	}
	q.lock()
	done, err = q.finishReserve(w, r)
	q.unlock()
	if done && ctx.Err() != nil {
		q.Cancel(ctx, w.ticket)
		err = context.Cause(ctx)
	}
	return done, err
}

// finishReserve does what an answer for s says. It reports true if s has left its line, with
// a grant or with err. It is called with the lock.
func (q *Queue) finishReserve(w *waiter, r reserveResult) (done bool, err error) {
	c, t := w.class, w.ticket
	q.claimTime = max(c.reserveTime, q.now-q.maxCatchUp)
	c.reserving = nil
	if err = r.err; r.aborted != nil || err == nil && t.grant == nil {
		if leave := q.leaveError(w, r); leave != nil {
			err = leave
		}
	}
	switch {
	case err != nil:
		q.wakeRolledBack(w, -1)
		q.removeWaiter(w)
		q.retryHead(c)
		return true, err
	case t.grant != nil:
		q.onGrant(w)
		q.retryHead(c)
		return true, nil
	default:
		if w.deadlineIndex < 0 {
			q.addDeadline(w)
		}
		first, changed := c.waiters.First() == w, c.generation() != c.reserveGeneration
		q.wakeRolledBack(w, r.demand)
		if first && !changed {
			q.onRefusal(w, r.demand, r.refusal)
		} else {
			q.retryHead(c)
		}
	}
	return false, nil
}

// wakeRolledBack looks again at the limits that may have granted their part of s before its
// demand i was refused, and have it back: what they gave for a moment may have been
// refused to others.
func (q *Queue) wakeRolledBack(w *waiter, i int) {
	for j := range w.ticket.Demands {
		if j == i {
			continue
		}
		m := &w.ticket.Demands[j]
		for k := range numLimits(m) {
			lq := q.limitQueues[limitKeyOf(m, k)]
			switch {
			case lq == nil:
			case lq.lastRefusal > w.class.reserveRefusals:
				q.wakeLimit(lq)
			default:
				lq.generation++ // for questions under way
			}
		}
	}
}

// callRemote asks for s in the goroutine of its caller. If a limiter panics, s leaves the
// line, as its caller does: else nothing behind it would ever be asked for again.
func (q *Queue) callRemote(ctx context.Context, w *waiter) (r reserveResult) {
	returned := false
	defer func() {
		if !returned {
			q.lock()
			w.class.reserving = nil
			q.wakeRolledBack(w, -1)
			q.removeWaiter(w)
			q.retryHead(w.class)
			q.unlock()
		}
	}()
	now, remaining := q.time.Read(time.Time{}), int64(never)
	if end := min(q.maxWaitEnd(w), latencyEnd(w, now, q.realAt(now))); end != never {
		remaining = ticks.Sub(end, now)
	}
	reserveCtx, stop := q.boundedContext(ctx, remaining)
	defer stop()
	r.demand, r.err = w.ticket.reserve(reserveCtx, q.baseClaim(w.ticket, w.class.reserveTime), &r.refusal)
	if reserveCtx.Err() != nil && ctx.Err() == nil {
		r.aborted = context.Cause(reserveCtx)
	}
	returned = true
	return r
}

// boundedContext returns a context that ends with ctx, when w is closed, or after left.
func (q *Queue) boundedContext(ctx context.Context, remaining int64) (bounded context.Context, stop func()) {
	bounded, cancel := context.WithCancelCause(ctx)
	stopClosing := context.AfterFunc(q.closeCtx, func() { cancel(ErrClosed) })
	if remaining == never {
		return bounded, func() { stopClosing(); cancel(nil) }
	}
	timer := time.AfterFunc(time.Duration(remaining), func() { cancel(errWaitExpired) })
	return bounded, func() { stopClosing(); timer.Stop(); cancel(nil) }
}

// leaveError returns an error if s must leave its line now, as a refused it or its
// question was ended.
func (q *Queue) leaveError(w *waiter, r reserveResult) error {
	if q.closed || r.aborted == ErrClosed {
		return ErrClosed
	}
	passed, reason := q.deadlinePassed(w)
	switch {
	case r.aborted != nil && r.refusal == (throttle.Decision{}):
		return q.expiredError(w, reason)
	case passed || r.aborted != nil:
		return &throttle.RefusedError{Key: w.ticket.Demands[r.demand].Key, Decision: r.refusal, Reason: reason}
	}
	return nil
}
