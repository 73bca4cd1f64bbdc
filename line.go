package heed

import (
	"context"
	"errors"
	"time"

	"github.com/heed-go/heed/throttle"
)

// acquire stands in line until all limits grant the next attempt.
func (rt *roundTrip) acquire() error {
	if f := rt.t.resolved.trace.WaitStart; f != nil {
		f(rt.req, TraceInfo{Attempt: rt.attempts + 1})
	}
	if rt.attempts > 0 {
		if err := rt.addQuotaDemand(); err != nil {
			return err
		}
	}
	rt.expectLatency()
	rt.granted, rt.sentToBase = true, false // held also if WaitTrace panics on the grant
	err := rt.wait()
	if rt.granted = err == nil; rt.granted && rt.attempts == 0 {
		rt.countForBudget()
	}
	if w := rt.ticket.Waited(); w > 0 {
		rt.info.addWait(w, rt.ticket.WaitedFor())
	}
	if f := rt.t.resolved.trace.WaitDone; f != nil {
		f(rt.req, TraceInfo{Attempt: rt.attempts + 1, Waited: rt.ticket.Waited(), Limit: rt.ticket.WaitedFor(), Err: err})
	}
	return err
}

// expectLatency lets the queue refuse a wait after which the response could no longer
// arrive before the deadline: the latency of the route counts, up to half of the time
// that the caller gave.
func (rt *roundTrip) expectLatency() {
	deadline, ok := rt.ctx.Deadline()
	if !ok || !rt.hasDemands {
		return
	}
	if rt.latencyBudget == 0 {
		rt.latencyBudget = max(time.Until(deadline)/2, 1)
	}
	rt.ticket.Latency = min(rt.t.resolved.quota.Latency(rt.req, rt.t.now()), rt.latencyBudget)
}

// countForBudget counts the call for the budget of retries, as of its grant.
func (rt *roundTrip) countForBudget() {
	if rt.noRetry {
		return
	}
	p := rt.retry
	if at := rt.ticket.GrantedAt(); !at.IsZero() {
		p.Budget.Deposit(at)
		return
	}
	// Without limits nobody has read the clock. To read it for one of many is
	// enough for a budget that counts many.
	if n := rt.t.unlimitedCalls.Add(1); n%budgetBatch == 0 {
		p.Budget.DepositN(rt.t.now(), budgetBatch)
	}
}

// budgetBatch is how many calls that no limit concerns are counted at a time.
const budgetBatch = 16

// wait is Queue.Wait within the longest wait that the request allows.
func (rt *roundTrip) wait() error {
	if !rt.hasDemands {
		return rt.cancelCause()
	}
	w := rt.t.resolved.queue
	if rt.opts.NoWait {
		return rt.tryAcquire()
	}
	limit, reason := rt.queueWaitLimit()
	if limit == throttle.Forever {
		ctx := rt.newWaitContext(!rt.nonBlocking())
		defer ctx.end()
		return rt.addMaxWaitReason(w.Wait(ctx, &rt.ticket))
	}
	parent := rt.newWaitContext(true)
	defer parent.end()
	ctx, cancel := context.WithTimeoutCause(parent, limit, reason)
	defer cancel()
	err := rt.addMaxWaitReason(w.Wait(ctx, &rt.ticket))
	var r *throttle.RefusedError
	if rt.cancelCause() == nil && errors.As(err, &r) && errors.Is(r.Reason, context.DeadlineExceeded) {
		if d, ok := rt.ctx.Deadline(); !ok || time.Until(d) > limit {
			return &throttle.RefusedError{Key: r.Key, Decision: r.Decision, Reason: reason}
		}
	}
	return err
}

// tryAcquire is stand for a request that does not wait.
func (rt *roundTrip) tryAcquire() error {
	ctx := rt.newWaitContext(!rt.nonBlocking())
	defer ctx.end()
	err := rt.t.resolved.queue.Try(ctx, &rt.ticket)
	var r *throttle.RefusedError
	if errors.As(err, &r) && r.Reason == nil {
		return &throttle.RefusedError{Key: r.Key, Decision: r.Decision, Reason: rt.errMaxWait()}
	}
	return err
}

// queueWaitLimit returns how long the request may wait in line now, and the error that
// says so: RequestOptions.MaxWait, or what is left of RetryPolicy.MaxElapsed before a retry.
func (rt *roundTrip) queueWaitLimit() (limit time.Duration, reason error) {
	limit = throttle.Forever
	if rt.opts.MaxWait > 0 {
		limit, reason = rt.opts.MaxWait, rt.errMaxWait()
	}
	if p := rt.retry; !rt.firstEnd.IsZero() && p.MaxElapsed < throttle.Forever {
		if left := max(p.MaxElapsed-rt.t.now().Sub(rt.firstEnd), 1); left < limit {
			limit, reason = left, withSetting(ErrMaxElapsed, "RetryPolicy.MaxElapsed", p.MaxElapsed)
		}
	}
	return limit, reason
}

// addMaxWaitReason adds to err that MaxWait is why, if a server asks for more than that, or an
// estimate has held the request for so long.
func (rt *roundTrip) addMaxWaitReason(err error) error {
	if err == nil {
		return nil // before r is allocated
	}
	var r *throttle.RefusedError
	if errors.As(err, &r) && r.Reason == nil && r.Decision.ServerImposed &&
		(r.Decision.Wait > rt.ticket.MaxServerWait || r.Decision.Estimated && rt.ticket.Waited() >= rt.ticket.MaxServerWait) {
		return &throttle.RefusedError{Key: r.Key, Decision: r.Decision, Reason: rt.errMaxWait()}
	}
	return err
}
