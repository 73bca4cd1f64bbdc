package heed

import (
	"context"
	"errors"
	"time"

	"github.com/heed-go/heed/throttle"
)

// line stands in line until all limits grant the next attempt.
func (c *call) line() error {
	if f := c.t.own.trace.Line; f != nil {
		f(c.req, Step{Attempt: c.attempts + 1})
	}
	if c.attempts > 0 {
		c.track()
	}
	c.expectLatency()
	c.held = true // also if a WaitTrace panics that is told of the grant
	err := c.stand()
	if c.held = err == nil; c.held && c.attempts == 0 {
		c.deposit()
	}
	if w := c.ticket.Waited(); w > 0 {
		c.info.stood(w, c.ticket.WaitedFor())
	}
	if f := c.t.own.trace.Admit; f != nil {
		f(c.req, Step{Attempt: c.attempts + 1, Waited: c.ticket.Waited(), Limit: c.ticket.WaitedFor(), Err: err})
	}
	return err
}

// expectLatency lets the queue refuse a wait after which the response could no longer
// arrive before the deadline: the latency of the route counts, up to half of the time
// that the caller gave.
func (c *call) expectLatency() {
	deadline, ok := c.ctx.Deadline()
	if !ok || !c.limited {
		return
	}
	if c.spare == 0 {
		c.spare = max(time.Until(deadline)/2, 1)
	}
	c.ticket.Latency = min(c.t.own.quota.Latency(c.req, c.t.now()), c.spare)
}

// deposit counts the call for the budget of retries, as of its grant.
func (c *call) deposit() {
	p := &c.t.own.retry
	if p.once(c.said) {
		return
	}
	if at := c.ticket.GrantedAt(); !at.IsZero() {
		p.Budget.Deposit(at)
		return
	}
	// Without limits nobody has read the clock. To read it for one of many is
	// enough for a budget that counts many.
	if n := c.t.calls.Add(1); n%callsAtOnce == 0 {
		p.Budget.DepositN(c.t.now(), callsAtOnce)
	}
}

// callsAtOnce is how many calls that no limit concerns are counted at a time.
const callsAtOnce = 16

// stand is Waiter.Wait within the request's own MaxWait.
func (c *call) stand() error {
	if !c.limited {
		return context.Cause(c.ctx)
	}
	w := c.t.own.waiter
	if c.said.MaxWait <= 0 {
		return tooLong(w.Wait(c.ctx, &c.ticket), c.ticket.MaxTold)
	}
	ctx, cancel := context.WithTimeoutCause(c.ctx, c.said.MaxWait, ErrMaxWait)
	defer cancel()
	err := w.Wait(ctx, &c.ticket)
	if err != nil && c.ctx.Err() == nil && !errors.Is(err, ErrMaxWait) {
		if d, ok := c.ctx.Deadline(); !ok || time.Until(d) > c.said.MaxWait {
			return &throttle.RefusedError{Decision: refusal(err), Reason: ErrMaxWait}
		}
	}
	return err
}

// tooLong adds to err that MaxWait is why, if a server asks for more than that.
func tooLong(err error, most time.Duration) error {
	if err == nil {
		return nil // before r is allocated
	}
	var r *throttle.RefusedError
	if errors.As(err, &r) && r.Reason == nil && r.Decision.Told && r.Decision.Wait > most {
		return &throttle.RefusedError{Key: r.Key, Decision: r.Decision, Reason: ErrMaxWait}
	}
	return err
}

// refusal returns the Decision that err tells, if it does.
func refusal(err error) throttle.Decision {
	var r *throttle.RefusedError
	if errors.As(err, &r) {
		return r.Decision
	}
	return throttle.Decision{}
}
