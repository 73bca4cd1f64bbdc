package heed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/explain"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// Deadline rules. A wait that breaks one of them is not begun: the request fails
// immediately with the error of the first rule, in this order:
//
//	rule                          waits                                      error
//	the context has ended         all                                        its cause
//	RequestOptions.NoWait         all                                        ErrMaxWait
//	the deadline of the context   all                                        context.DeadlineExceeded
//	RetryPolicy.MaxElapsed        all after the first attempt                ErrMaxElapsed
//	RequestOptions.MaxWait        all                                        ErrMaxWait
//	RetryPolicy.MaxWait           delays before a retry, and waits in the    ErrMaxWait
//	                              queue for limits of the server
//
// checkWait applies all but the first to waits outside the queue: the start delay and the
// delay before a retry. The first applies when a wait begins. In the queue, the
// waitContext and Ticket.MaxServerWait stand for them, and addReason names the rule. An
// attempt in flight is never canceled by a rule other than the context.

// checkWait returns the error of the first rule that forbids a wait of d from now on, or
// nil. maxWait is the longest wait by the last two rules.
func (rt *roundTrip) checkWait(now time.Time, d, maxWait time.Duration) error {
	deadline, hasDeadline := rt.ctx.Deadline()
	switch {
	case rt.opts.NoWait && d > 0:
		return rt.errMaxWait()
	case hasDeadline && time.Until(deadline) <= d:
		return deadlineError(d)
	case !rt.retryUntil.IsZero() && now.Add(d).After(rt.retryUntil):
		return rt.errMaxElapsed()
	case d > maxWait:
		return rt.errMaxWait()
	}
	return nil
}

// deadlineError returns context.DeadlineExceeded for a wait of d that is not begun, because it would end
// after the deadline of the context. It says so, because no deadline has passed yet.
func deadlineError(d time.Duration) error {
	if d <= 0 {
		return context.DeadlineExceeded
	}
	return fmt.Errorf("heed: a wait of %s would end after the deadline of the context: %w", explain.Duration(d), context.DeadlineExceeded)
}

// errMaxWait returns ErrMaxWait with the setting that determines maxWait.
func (rt *roundTrip) errMaxWait() error {
	switch {
	case rt.opts.NoWait:
		return withSetting(ErrMaxWait, "RequestOptions.NoWait", true)
	case rt.opts.MaxWait != 0:
		return withSetting(ErrMaxWait, "RequestOptions.MaxWait", rt.opts.MaxWait)
	}
	return withSetting(ErrMaxWait, "RetryPolicy.MaxWait", rt.retry.MaxWait)
}

// errMaxElapsed returns ErrMaxElapsed with its setting.
func (rt *roundTrip) errMaxElapsed() error {
	return withSetting(ErrMaxElapsed, "RetryPolicy.MaxElapsed", rt.retry.MaxElapsed)
}

// waitForStart waits until the start delay of the Transport has passed.
func (rt *roundTrip) waitForStart() error {
	t := rt.t
	t.startDelay.once.Do(func() {
		offset := backoff.RandomOffset()
		if t.StartSeed != "" {
			offset = backoff.OffsetFor(t.StartSeed)
		}
		t.startDelay.at = t.resolved.now().Add(offset.In(t.StartJitter))
	})
	now := t.resolved.now()
	wait := t.startDelay.at.Sub(now)
	if wait <= 0 {
		t.startDelay.passed.Store(true)
		return nil
	}
	if err := rt.checkWait(now, wait, cmp.Or(rt.opts.MaxWait, throttle.Forever)); err != nil {
		return fmt.Errorf("heed: Transport.StartJitter delays the first request by another %v: %w", wait, err)
	}
	return rt.sleep(wait)
}

// sleep waits for d outside the queue. It returns the cause if the request is canceled
// before.
func (rt *roundTrip) sleep(d time.Duration) (err error) {
	t := rt.t
	start := t.resolved.now()
	ctx, stop := context.WithCancelCause(rt.ctx)
	defer stop(nil)
	t.cancellations.update(rt.req, cancellation{stop: stop})
	defer t.cancellations.update(rt.req, cancellation{})
	select {
	case <-t.resolved.after(d):
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-rt.userCancel:
		err = errCanceled
	}
	waited := t.resolved.now().Sub(start)
	rt.info.BackoffWait += waited
	if rt.attempts > 0 {
		rt.retryDelay += waited
	}
	return err
}

// expectLatency sets the latency of the server in the ticket. The queue then rejects a wait
// after which the response would probably arrive after the deadline, and prefers callers that
// have enough time even for a slow response. If the wait must end earlier than the deadline, the
// time from its end on counts for the response.
func (rt *roundTrip) expectLatency(deadline, waitEnd time.Time) {
	typical, high := rt.t.resolved.quota.Latency(rt.req, rt.t.resolved.now())
	after := time.Duration(0)
	if !waitEnd.IsZero() {
		after = max(deadline.Sub(waitEnd), 0)
	}
	rt.highLatency, rt.ticket.Latency, rt.ticket.HighLatency = high, max(typical-after, 0), max(high-after, 0)
}

// wait calls Queue.Wait, or Queue.Try for a request with RequestOptions.NoWait.
func (rt *roundTrip) wait() error {
	if !rt.hasDemands {
		return rt.cancelCause()
	}
	w := &rt.waitCtx
	if rt.mayBlock { // a limiter may keep the context after the wait
		w = new(waitContext)
	}
	*w = waitContext{Context: rt.ctx, roundTrip: rt, limit: throttle.Forever}
	defer func() {
		if rt.mayBlock || w.derived != nil { // else nothing knows w
			w.end()
		}
	}()
	if !rt.opts.NoWait {
		if !rt.retryUntil.IsZero() {
			w.limit, w.reason = max(rt.retryUntil.Sub(rt.t.resolved.now()), 1), (*roundTrip).errMaxElapsed
		}
		if m := rt.opts.MaxWait; m != 0 && m < w.limit {
			w.limit, w.reason = m, (*roundTrip).errMaxWait
		}
		if w.reason != nil {
			w.deadline = time.Now().Add(w.limit)
		}
	}
	if deadline, ok := rt.ctx.Deadline(); ok {
		rt.expectLatency(deadline, w.deadline)
	}
	var err error
	if q := rt.t.resolved.queue; rt.opts.NoWait {
		err = q.Try(w, &rt.ticket)
	} else {
		err = q.WaitHooks(w, &rt.ticket, rt.hooks)
	}
	if err != nil {
		err = rt.addReason(err, w)
	}
	return err
}

// addReason adds the rule that forbade the wait w to err, the result of the queue.
func (rt *roundTrip) addReason(err error, w *waitContext) error {
	var r *throttle.RefusedError
	if rt.cancelCause() != nil || !errors.As(err, &r) {
		return err
	}
	d, reason := &r.Decision, w.reason
	switch deadline, hasDeadline := rt.ctx.Deadline(); {
	case rt.opts.NoWait && r.Reason == nil:
		reason = (*roundTrip).errMaxWait
	case reason != nil && errors.Is(r.Reason, context.DeadlineExceeded):
		if hasDeadline && time.Until(deadline) <= max(w.limit, d.Wait) {
			return err
		}
		if !rt.retryUntil.IsZero() && rt.t.resolved.now().Add(d.Wait).After(rt.retryUntil) {
			reason = (*roundTrip).errMaxElapsed // w has the smaller limit of the two rules
		}
	case r.Reason == nil && d.ServerImposed && (d.Wait > rt.ticket.MaxServerWait || d.Estimated && rt.ticket.Waited() >= rt.ticket.MaxServerWait):
		reason = (*roundTrip).errMaxWait
	default:
		return err
	}
	return &throttle.RefusedError{Key: r.Key, Decision: r.Decision, Reason: reason(rt)}
}

// recordPosition records and traces that the request begins to wait in the queue.
func (rt *roundTrip) recordPosition(p queue.Position) {
	i := &rt.waitStart
	i.At, i.Limit, i.ServerImposed, i.Estimated, i.Ahead, i.ExpectedEnd = p.At, p.Limit, p.ServerImposed, p.Estimated, p.Ahead, p.ExpectedEnd
	_, i.Reason = explain.SplitLimit(p.Limit)
	if f := rt.trace.WaitStart; f != nil {
		f(rt.req, rt.waitStart)
	}
}

// addWait adds the time of a wait in the queue that has ended with err.
func (rt *roundTrip) addWait(waited time.Duration, err error) {
	rt.info.addWait(waited, rt.ticket.WaitedFor())
	if rt.attempts > 0 {
		rt.retryDelay += waited
	}
	if waited > rt.longestWait.Waited {
		rt.longestWait = rt.waitDoneInfo(err)
	}
}

// A waitContext is the context of one wait of a call in the queue. It is canceled with the
// context of the request, by Request.Cancel and CancelRequest, and at its deadline. Most
// waits end before they block, so the derived context is only created by the first call of
// Done.
type waitContext struct {
	context.Context // context of the request

	limit    time.Duration          // the longest wait by the rules for all waits, or throttle.Forever
	deadline time.Time              // the end of limit; zero if limit is throttle.Forever
	reason   func(*roundTrip) error // returns the cause of the end at deadline

	mu        sync.Mutex // guards the fields below
	roundTrip *roundTrip // nil after the wait
	derived   context.Context
	stop      context.CancelCauseFunc
	stopTimer context.CancelFunc // releases the timer for deadline; nil if there is none
}

// Deadline implements context.Context.
func (w *waitContext) Deadline() (time.Time, bool) {
	deadline, ok := w.Context.Deadline()
	if !w.deadline.IsZero() && (!ok || w.deadline.Before(deadline)) {
		return w.deadline, true
	}
	return deadline, ok
}

// Done implements context.Context.
func (w *waitContext) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.derived != nil {
		return w.derived.Done()
	}
	w.derived, w.stop = context.WithCancelCause(w.Context)
	rt := w.roundTrip
	if rt == nil {
		w.stop(nil)
		return w.derived.Done()
	}
	if !w.deadline.IsZero() {
		w.derived, w.stopTimer = context.WithDeadlineCause(w.derived, w.deadline, w.reason(rt))
	}
	rt.t.cancellations.update(rt.req, cancellation{stop: w.stop})
	if rt.userCancel != nil {
		watchCancel(w.derived, rt.userCancel, w.stop)
	}
	return w.derived.Done()
}

// Err implements context.Context.
func (w *waitContext) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.derived != nil && w.derived.Err() != nil:
		return w.derived.Err()
	case w.roundTrip == nil:
		return w.Context.Err()
	}
	return w.roundTrip.cancelCause()
}

// Value implements context.Context. Through it, context.Cause finds the cause of derived.
func (w *waitContext) Value(key any) any {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.derived != nil {
		return w.derived.Value(key)
	}
	return w.Context.Value(key)
}

// end marks the wait as over and cancels the derived context.
func (w *waitContext) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	rt := w.roundTrip
	w.roundTrip = nil
	if w.stop != nil {
		w.stop(nil)
		rt.t.cancellations.update(rt.req, cancellation{})
	}
	if w.stopTimer != nil {
		w.stopTimer()
	}
}

// cancelCause returns the error of a canceled request, or nil if it is not canceled.
func (rt *roundTrip) cancelCause() error {
	if rt.ctx.Err() != nil {
		return context.Cause(rt.ctx)
	}
	if c := &rt.t.cancellations; c.hasCanceled.Load() && c.isCanceled(rt.req) {
		return errCanceled
	}
	select {
	case <-rt.userCancel:
		return errCanceled
	default:
		return nil
	}
}

// watchCancel calls stop when cancel is closed, unless ctx ends first.
func watchCancel(ctx context.Context, cancel <-chan struct{}, stop context.CancelCauseFunc) {
	go func() {
		select {
		case <-cancel:
			stop(errCanceled)
		case <-ctx.Done():
		}
	}()
}
