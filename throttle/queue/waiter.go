package queue

import (
	"context"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A waiter is one call of Wait that waits.
type waiter struct {
	ticket        *Ticket
	class         *class
	wake          chan struct{} // buffered, so that signal does not block
	ctxDeadline   int64         // deadline of its context less Ticket.Latency, on the real clock; or never
	classIndex    int32         // in class.waiters
	deadlineIndex int32         // in Queue.deadlines, or -1
	late          bool          // it goes behind others, see demoteLate
	stopped       bool          // Hooks.Queued has returned an error
	renewed       bool          // it was renewed, and is counted in Queue.numWaiting while it has no class
}

// A join says how a ticket joins its class.
type join struct {
	since    int64                // when its wait began; 0: it begins now
	again    bool                 // it was granted or has waited before, so limits on the number of waiters do not apply
	renewals int64                // Queue.renewals before its demands were determined; never: it is not renewed
	queued   func(Position) error // Hooks.Queued; nil: it is not called
}

// waitInQueue adds w to its class, and returns when w has been granted or rejected, or when ctx
// ends. If w is signaled without a result, it asks its limiters, and calls j.queued if they
// reject it.
func (q *Queue) waitInQueue(ctx context.Context, w *waiter, j join) error {
	asking, err := q.enqueue(w, j)
	if err != nil {
		return err
	}
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return q.abandon(ctx, w)
		}
		if w.ticket.grant != nil {
			return w.ticket.outcome()
		}
		if done, err := q.reserveRemote(ctx, w); done {
			return err
		}
		if asking {
			asking = false
			if err = q.callFor(w, func() error { return q.announce(w, nil, j.queued) }); err != nil {
				return err
			}
		}
	}
}

// enqueue adds w to its class. It calls j.queued unless a limiter that may block is being asked for w, which it reports
// by asking. Its frame must not be on the stacks of waiting goroutines.
//
//go:noinline
func (q *Queue) enqueue(w *waiter, j join) (asking bool, err error) {
	q.lock()
	if err = q.addWaiter(w, j); err != nil {
		q.unlock()
		return false, err
	}
	asking = w.class.reserving == w
	if j.renewals != never && j.renewals != q.renewals.Load() && (asking || w.ticket.grant == nil) {
		q.rejectSoon(w, errRenewed)
	}
	done := !asking && w.ticket.grant != nil
	if done && j.since == 0 {
		w.ticket.waited = 0
	}
	c := q.baseClaim(w, q.now)
	q.unlock()
	if done {
		return false, nil
	}
	return asking, q.callFor(w, func() error {
		if asking {
			return q.announce(w, q.Trace, nil)
		}
		q.checkUpFront(w, c)
		if j.since == 0 && len(w.wake) > 0 { // the time that it took to ask the limiters is no wait
			q.lock()
			if w.ticket.grant != nil {
				w.ticket.waited = 0
			}
			q.unlock()
		}
		return q.announce(w, q.Trace, j.queued)
	})
}

func (q *Queue) newWaiter(ctx context.Context, t *Ticket) *waiter {
	w, ok := q.waiterPool.Get().(*waiter)
	if !ok {
		w = &waiter{wake: make(chan struct{}, 1)}
	}
	w.ticket, w.ctxDeadline, w.deadlineIndex = t, never, -1
	if deadline, ok := ctx.Deadline(); ok {
		w.ctxDeadline = ticks.Sub(int64(deadline.Sub(q.realStart)), max(int64(t.Latency), 0))
	}
	return w
}

// deadline returns the deadline of the context of w, which has one, on the real clock.
func (w *waiter) deadline() int64 { return ticks.Add(w.ctxDeadline, max(int64(w.ticket.Latency), 0)) }

// signal wakes the goroutine of w. A waiter that was granted or rejected may be reused for another ticket afterwards.
func (w *waiter) signal() { w.wake <- struct{}{} }

// abandon removes w from its class, because ctx has ended.
func (q *Queue) abandon(ctx context.Context, w *waiter) error {
	q.lock()
	c, waiting := w.class, w.isWaiting()
	switch {
	case waiting:
		q.removeWaiter(w)
	case c.reserving == w && c.nonBlocking:
		c.leaving = errAbandoned // another goroutine asks the limiters of w, and signals w afterwards
	case c.reserving == w: // w was to ask its limiters
		_, _ = q.finishReserve(w, reserveResult{err: errAbandoned})
	}
	q.unlock()
	if !waiting {
		<-w.wake
	}
	if w.ticket.grant != nil {
		switch err := w.ticket.outcome(); err {
		case nil: // granted too late: nothing will use the units
			q.Report(ctx, w.ticket, throttle.Feedback{State: throttle.Unused})
		case errAbandoned:
		default:
			return err
		}
	}
	return context.Cause(ctx)
}

// callFor calls f, which calls limiters or hooks, on the goroutine of the caller of w, and returns its error. If there is
// one, or f panics, w leaves its class.
func (q *Queue) callFor(w *waiter, f func() error) error {
	err := errAbandoned
	defer func() {
		if err != nil {
			_ = q.abandon(context.Background(), w) // the error or the panic is the result
		}
	}()
	err = f()
	w.stopped = err != nil
	return err
}

// rejectSoon rejects w with err, or if its limiters are being asked when these have rejected it.
func (q *Queue) rejectSoon(w *waiter, err error) {
	if c := w.class; c.reserving == w {
		c.leaving = err
	} else {
		q.reject(w, err)
	}
}

// reject removes w from its class and wakes it with err.
func (q *Queue) reject(w *waiter, err error) {
	q.removeRejected(w, err)
	w.fail(err)
}

// removeRejected removes w from its class with err. A waiter that was renewed stays counted, so
// that Drain waits for it.
func (q *Queue) removeRejected(w *waiter, err error) {
	if _, rejected := err.(*throttle.RejectedError); rejected && w.class.blockedAt != nil {
		w.class.blockedAt.limitQueue.rejected++
	}
	if w.renewed = err == errRenewed; w.renewed {
		q.numWaiting.Add(1)
	}
	q.removeWaiter(w)
}

// fail wakes w, which has left its class, with err.
func (w *waiter) fail(err error) {
	g := grantPool.Get().(*grant)
	g.err, w.ticket.grant = err, g
	w.signal()
}

// isWaiting reports whether w is in its class and its limiters are not being asked.
func (w *waiter) isWaiting() bool { return w.class.reserving != w && w.ticket.grant == nil }
