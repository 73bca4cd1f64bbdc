package heed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
//	RetryPolicy.MaxServerWait     delays before a retry, and waits in the    ErrMaxWait
//	                              queue for limits of the server
//
// checkWait applies all but the first to waits outside the queue; the first applies when a
// wait begins. In the queue, the deadline of its context and Ticket.MaxServerWait stand for
// them, and addReason names the rule. No rule but the context cancels an attempt in flight.

// checkWait returns the error of the first rule that forbids a wait of d from now on, or
// nil. maxWait is the longest wait by the last two rules.
func (rt *roundTrip) checkWait(now time.Time, d, maxWait time.Duration) error {
	deadline, hasDeadline := rt.ctx.Deadline()
	switch {
	case rt.opts.NoWait && d > 0:
		return rt.errMaxWait()
	case hasDeadline && time.Until(deadline) <= d:
		return deadlineError(d)
	case !rt.until.IsZero() && now.Add(d).After(rt.until):
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
		return &settingError{ErrMaxWait, "RequestOptions.NoWait", true}
	case rt.opts.MaxWait != 0:
		return &settingError{ErrMaxWait, "RequestOptions.MaxWait", rt.opts.MaxWait}
	}
	return &settingError{ErrMaxWait, "RetryPolicy.MaxServerWait", rt.retry.MaxServerWait}
}

func (rt *roundTrip) errMaxElapsed() error {
	return &settingError{ErrMaxElapsed, "RetryPolicy.MaxElapsed", rt.retry.MaxElapsed}
}

// waitForStart waits until the start delay of the Transport has passed.
func (rt *roundTrip) waitForStart() error {
	t := rt.t
	t.startOnce.Do(func() {
		offset := backoff.RandomOffset()
		if t.StartSeed != "" {
			offset = backoff.OffsetFor(t.StartSeed)
		}
		t.startAt = t.resolved.clock.Now().Add(offset.In(t.StartJitter))
	})
	now := t.resolved.clock.Now()
	wait := t.startAt.Sub(now)
	if wait <= 0 {
		t.startPassed.Store(true)
		return nil
	}
	if err := rt.checkWait(now, wait, cmp.Or(rt.opts.MaxWait, throttle.Forever)); err != nil {
		return fmt.Errorf("heed: Transport.StartJitter delays the first request by another %s: %w", explain.DurationUp(wait), err)
	}
	return rt.sleep(wait)
}

// sleep waits for d outside the queue. It returns the cause if the context of the request ends before.
func (rt *roundTrip) sleep(d time.Duration) (err error) {
	t := rt.t
	start := t.resolved.clock.Now()
	select {
	case <-t.resolved.clock.After(d):
	case <-rt.ctx.Done():
		err = context.Cause(rt.ctx)
	}
	waited := t.resolved.clock.Now().Sub(start)
	rt.info.BackoffWait += waited
	if rt.info.Attempts > 0 {
		rt.betweenAttempts += waited
	}
	return err
}

// expectLatency sets the latency of the server in the ticket. The queue then rejects a wait after which the response
// would probably arrive after the deadline, and prefers callers that have enough time even for a slow response. If the
// wait must end earlier than the deadline, the time from its end on counts for the response.
func (rt *roundTrip) expectLatency(deadline, waitEnd time.Time) {
	typical, high := rt.t.resolved.feedback.Latency(rt.req, rt.t.resolved.clock.Now())
	after := time.Duration(0)
	if !waitEnd.IsZero() {
		after = max(deadline.Sub(waitEnd), 0)
	}
	a := rt.attempt
	a.highLatency, a.ticket.Latency, a.ticket.HighLatency = high, max(typical-after, 0), max(high-after, 0)
}

// wait calls Queue.Wait, or Queue.Try for a request with RequestOptions.NoWait.
func (rt *roundTrip) wait() (err error) {
	if !rt.hasDemands {
		return context.Cause(rt.ctx)
	}
	ctx, rule := rt.ctx, rt.waitRule()
	if rule.reason != nil {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadlineCause(ctx, rule.end, rule.reason)
		defer stop()
	}
	if deadline, ok := rt.ctx.Deadline(); ok {
		rt.expectLatency(deadline, rule.end)
	}
	if q := rt.t.resolved.queue; rt.opts.NoWait {
		err = q.Try(ctx, &rt.attempt.ticket)
	} else {
		err = q.WaitHooks(ctx, &rt.attempt.ticket, rt.hooks)
	}
	switch b, ok := err.(breakerError); { //nolint:errorlint // the Queue returns it as it is
	case ok:
		return b.error
	case err == nil:
		return nil
	case !rt.opts.NoWait && (errors.Is(err, throttle.ErrRejected) || ctx.Err() == context.DeadlineExceeded):
		rt.reportGaveUp() // a limit or a deadline has ended the wait
	}
	return rt.addReason(err, rule)
}

// A breakerError is the error of a Breaker, which no limit of the queue has returned, even if it is a rejection.
type breakerError struct{ error }

// A waitRule is the rule other than the context that ends a wait in the queue first. It is zero if there is none.
type waitRule struct {
	limit  time.Duration // the longest wait
	end    time.Time     // the end of limit
	reason error         // the error of the rule
}

// waitRule returns the rule for a wait in the queue that begins now.
func (rt *roundTrip) waitRule() (r waitRule) {
	if rt.opts.NoWait {
		return r // Queue.Try does not wait
	}
	if !rt.until.IsZero() {
		r.limit, r.reason = max(rt.until.Sub(rt.t.resolved.clock.Now()), 1), rt.errMaxElapsed()
	}
	if m := rt.opts.MaxWait; m != 0 && (r.reason == nil || m < r.limit) {
		r.limit, r.reason = m, rt.errMaxWait()
	}
	if r.reason != nil {
		r.end = time.Now().Add(r.limit)
	}
	return r
}

// addReason adds the rule that forbade the wait to err, the result of the queue. rule is that of waitRule.
func (rt *roundTrip) addReason(err error, rule waitRule) error {
	var r *throttle.RejectedError
	if context.Cause(rt.ctx) != nil || !errors.As(err, &r) {
		return err
	}
	d, reason, t := &r.Decision, rule.reason, &rt.attempt.ticket
	switch deadline, hasDeadline := rt.ctx.Deadline(); {
	case rt.opts.NoWait && r.Reason == nil:
		reason = rt.errMaxWait()
	case reason != nil && errors.Is(r.Reason, context.DeadlineExceeded):
		if hasDeadline && time.Until(deadline) <= max(rule.limit, d.Wait) {
			return err
		}
		if !rt.until.IsZero() && rt.t.resolved.clock.Now().Add(d.Wait).After(rt.until) {
			reason = rt.errMaxElapsed() // rule has the smaller limit of the two
		}
	case r.Reason == nil && d.ServerImposed && (d.Wait > t.MaxServerWait || d.Estimated && t.Waited() >= t.MaxServerWait):
		reason = rt.errMaxWait()
	default:
		return err
	}
	return &throttle.RejectedError{Key: r.Key, Decision: r.Decision, Reason: reason}
}

// queued asks the Breaker when the request begins to wait in the queue, and records and traces the beginning.
func (rt *roundTrip) queued(p queue.Position) error {
	if err := rt.askBreaker(); err != nil {
		return breakerError{err}
	}
	i := &rt.attempt.wait
	i.StartLimit = p.Limit
	i.At, i.Limit, i.ServerImposed, i.Estimated, i.Ahead, i.ExpectedEnd = p.At, p.Limit, p.ServerImposed, p.Estimated, p.Ahead, p.ExpectedEnd
	_, i.Reason = explain.SplitLimit(p.Limit)
	if f := rt.trace.WaitStart; f != nil {
		f(rt.req, *i)
	}
	return nil
}

// addWait adds the time of a wait in the queue that has ended with err.
func (rt *roundTrip) addWait(waited time.Duration, err error) {
	rt.info.QueueWait += waited
	if rt.info.Attempts > 0 {
		rt.betweenAttempts += waited
	}
	if waited > rt.longestWait.Waited {
		rt.longestWait = rt.waitDoneInfo(err)
		rt.info.Limit, _, _ = rt.attempt.ticket.WaitedFor()
	}
}
