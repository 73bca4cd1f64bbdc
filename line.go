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
		if err := c.track(); err != nil {
			return err
		}
	}
	c.expectLatency()
	c.held, c.used = true, false // held also if WaitTrace panics on the grant
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
	if c.once {
		return
	}
	p := c.retry
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

// stand is Waiter.Wait within the longest wait that the request allows.
func (c *call) stand() error {
	if !c.limited {
		return c.gone()
	}
	w := c.t.own.waiter
	if c.said.NoWait {
		return c.attemptNow()
	}
	most, why := c.longestStay()
	if most == throttle.Forever {
		ctx := c.waiting(!c.local())
		defer ctx.end()
		return c.tooLong(w.Wait(ctx, &c.ticket))
	}
	outer := c.waiting(true)
	defer outer.end()
	ctx, cancel := context.WithTimeoutCause(outer, most, why)
	defer cancel()
	err := c.tooLong(w.Wait(ctx, &c.ticket))
	var r *throttle.RefusedError
	if c.gone() == nil && errors.As(err, &r) && errors.Is(r.Reason, context.DeadlineExceeded) {
		if d, ok := c.ctx.Deadline(); !ok || time.Until(d) > most {
			return &throttle.RefusedError{Key: r.Key, Decision: r.Decision, Reason: why}
		}
	}
	return err
}

// attemptNow is stand for a request that does not wait.
func (c *call) attemptNow() error {
	ctx := c.waiting(!c.local())
	defer ctx.end()
	err := c.t.own.waiter.Try(ctx, &c.ticket)
	var r *throttle.RefusedError
	if errors.As(err, &r) && r.Reason == nil {
		return &throttle.RefusedError{Key: r.Key, Decision: r.Decision, Reason: c.errMaxWait()}
	}
	return err
}

// longestStay returns how long the request may wait in line now, and the error that
// says so: Request.MaxWait, or what is left of Retry.MaxElapsed before a retry.
func (c *call) longestStay() (most time.Duration, why error) {
	most = throttle.Forever
	if c.said.MaxWait > 0 {
		most, why = c.said.MaxWait, c.errMaxWait()
	}
	if p := c.retry; !c.began.IsZero() && p.MaxElapsed < throttle.Forever {
		if left := max(p.MaxElapsed-c.t.now().Sub(c.began), 1); left < most {
			most, why = left, spent(ErrMaxElapsed, "Retry.MaxElapsed", p.MaxElapsed)
		}
	}
	return most, why
}

// tooLong adds to err that MaxWait is why, if a server asks for more than that, or an
// estimate has held the request for so long.
func (c *call) tooLong(err error) error {
	if err == nil {
		return nil // before r is allocated
	}
	var r *throttle.RefusedError
	if errors.As(err, &r) && r.Reason == nil && r.Decision.Told &&
		(r.Decision.Wait > c.ticket.MaxTold || r.Decision.Estimated && c.ticket.Waited() >= c.ticket.MaxTold) {
		return &throttle.RefusedError{Key: r.Key, Decision: r.Decision, Reason: c.errMaxWait()}
	}
	return err
}
