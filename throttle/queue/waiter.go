package queue

import (
	"context"

	"github.com/heed-go/heed/internal/ticks"
)

// A waiter is one caller in line.
type waiter struct {
	ticket        *Ticket
	class         *class
	wake          chan struct{} // has room for one, so that calling never blocks
	ctxDeadline   int64         // deadline of its context less Ticket.Latency, on the real clock; or never
	classIndex    int32         // in class.waiters
	deadlineIndex int32         // in Queue.deadlines, or -1
}

// waitInQueue lets t wait in line.
func (q *Queue) waitInQueue(ctx context.Context, t *Ticket, retry bool) error {
	w := q.newWaiter(ctx, t)
	err := q.enqueue(w, retry)
	if err == nil {
		err = q.awaitResult(ctx, w)
	}
	w.ticket, w.class = nil, nil
	q.waiterPool.Put(w)
	return err
}

// enqueue puts s into its line. It is not inlined, so that its frame is gone from the
// stacks of those who wait.
//
//go:noinline
func (q *Queue) enqueue(w *waiter, retry bool) error {
	q.lock()
	err := q.addWaiter(w, retry)
	reserving := err == nil && w.class.reserving == w
	if err != nil {
		w.ticket.waited = 0
	}
	done := err != nil || !reserving && w.ticket.grant != nil
	c := q.baseClaim(w.ticket, q.now)
	q.unlock()
	if done {
		return err
	}
	panicked := true
	defer func() {
		if panicked { // a limiter or Trace.Queued panicked: the caller leaves, and so does s
			_ = q.abandon(context.Background(), w)
		}
	}()
	if !reserving {
		q.checkUpFront(w, c)
	}
	q.traceQueued(w)
	panicked = false
	return nil
}

// traceQueued calls Trace.Queued if s waits.
func (q *Queue) traceQueued(w *waiter) {
	if q.Trace == nil || q.Trace.Queued == nil {
		return
	}
	q.lock()
	waiting := w.class.reserving == w || w.ticket.grant == nil
	var stats Stats
	if waiting {
		stats = q.classStats(w.class)
	}
	q.unlock()
	if waiting {
		q.Trace.Queued(w.ticket, stats)
	}
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

// signal wakes the goroutine of s. Afterwards a seat that was granted or refused may be
// in use for another ticket.
func (w *waiter) signal() { w.wake <- struct{}{} }

// awaitResult returns when s was granted or refused, or when ctx ends. Whenever s is
// called and there is neither, it has a question to ask.
func (q *Queue) awaitResult(ctx context.Context, w *waiter) error {
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
	}
}

// abandon takes s out of its line, as ctx has ended.
func (q *Queue) abandon(ctx context.Context, w *waiter) error {
	q.lock()
	c := w.class
	reserving := c.reserving == w
	signaled := reserving || w.ticket.grant != nil
	switch {
	case reserving && c.nonBlocking:
		c.abandoned = true // another goroutine asks for s, and calls it then
	case reserving || !signaled:
		q.removeWaiter(w)
		if reserving {
			c.reserving = nil
			q.retryHead(c)
		}
	}
	q.unlock()
	if signaled {
		<-w.wake
	}
	if w.ticket.grant != nil { // too late: the units are there, but nobody to use them
		if err := w.ticket.outcome(); err == errAbandoned {
			return context.Cause(ctx)
		} else if err != nil {
			return err
		}
		q.Cancel(ctx, w.ticket)
	}
	return context.Cause(ctx)
}

// reject sends s home with err.
func (q *Queue) reject(w *waiter, err error) {
	q.removeWaiter(w)
	w.fail(err)
}

// fail wakes s, which has left its line, with err.
func (w *waiter) fail(err error) {
	g := grantPool.Get().(*grant)
	g.err, w.ticket.grant = err, g
	w.signal()
}

// isWaiting reports whether s is in its line and not asked for at the moment.
func (w *waiter) isWaiting() bool { return w.class.reserving != w && w.ticket.grant == nil }
