package heed

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// again decides whether what came of the latest attempt is not final, and then how
// long to pause. If it is a failure and final, reason says why.
func (c *call) again(resp *http.Response, err error) bool {
	c.resp, c.err, c.rest, c.reason = resp, err, rest{}, nil
	p := &c.t.own.retry
	if p.once(c.said) {
		return false
	}
	if err == nil && resp.StatusCode < 400 && c.outcome != throttle.Throttled && p.Again == nil {
		return false
	}
	if c.settled() {
		return false
	}
	now := c.now
	if now.IsZero() {
		now = c.t.now()
	}
	var report quota.Report
	v := final
	if err != nil {
		v = verdictOnError(err)
	} else {
		report = quota.Parse(resp.StatusCode, resp.Header, now)
		v = verdictOn(resp, c.outcome, report.HasRetryAfter)
		if c.key != "" && resp.StatusCode == http.StatusConflict {
			v = idempotent
		}
	}
	safe := c.key != "" || harmless(c.req, c.said)
	again := v == always || v == idempotent && safe
	if p.Again != nil {
		if again, c.reason = p.Again(c.req, resp, err, again); c.reason != nil {
			c.stopped = true
			return false
		}
	}
	if again {
		c.reason = c.plan(now, report)
		return c.reason == nil
	}
	if v == idempotent && !safe {
		c.reason = ErrUnsafe
	}
	return false
}

// settled reports whether nobody wants another attempt: the caller has gone, or
// a Transport below has given up already, so that attempts do not multiply.
func (c *call) settled() bool {
	if c.err != nil && c.ctx.Err() != nil {
		if c.attempts > 1 {
			c.reason = context.Cause(c.ctx)
		}
		return true
	}
	var below *GiveUpError
	if errors.As(c.err, &below) {
		return true
	}
	n := noteOf(c.resp)
	return n != nil && n.info.GaveUp != nil
}

// plan prepares the next attempt, or returns why there can be none.
func (c *call) plan(now time.Time, r quota.Report) error {
	p := &c.t.own.retry
	if c.began.IsZero() {
		c.began, c.policy = now, backoff.ForCall(p.Backoff)
	}
	throttled := c.outcome == throttle.Throttled
	if !throttled {
		c.failures++
	}
	if c.failures >= p.Attempts || c.attempts >= p.Throttled {
		return ErrAttempts
	}
	if r.HasRetryAfter || c.told > 0 {
		c.delay = p.Floor.Delay(max(r.RetryAfter, c.told), c.attempts)
	} else {
		c.delay = c.policy.Delay(c.attempts, c.delay)
	}
	wait, gated := c.delay, false
	if throttled {
		if gate, shut := c.gate(); shut && (gate == 0 || gate >= r.RetryAfter) {
			c.delay, wait, gated = 0, gate, true
		}
	}
	if err := c.affords(now, wait); err != nil {
		return err
	}
	if err := c.body.prepare(c.req); err != nil {
		return err
	}
	if !gated && !p.Budget.Withdraw(now) {
		return ErrBudget
	}
	return nil
}

// gate returns whether the server's limits, as the Tracker knows them, are shut
// now, and for how long at least; 0: not known. Then everybody whom they concern
// waits in line for them, and is let go one by one: to pause alone besides would
// only lose the turn.
func (c *call) gate() (wait time.Duration, shut bool) {
	if c.tracked == 0 {
		return 0, false
	}
	m := c.t.own.quota.Demand(c.req)
	if m.Limiter == nil {
		return 0, false
	}
	d, err := m.Limiter.Reserve(c.ctx, throttle.Claim{Key: m.Key, Cost: m.Cost, DryRun: true})
	return d.Wait, err == nil && !d.OK
}

// affords returns an error if a wait that begins now would be too long.
func (c *call) affords(now time.Time, wait time.Duration) error {
	p := &c.t.own.retry
	most := p.MaxWait
	if c.said.MaxWait > 0 {
		most = c.said.MaxWait
	}
	deadline, limited := c.ctx.Deadline()
	switch {
	case wait > most:
		return ErrMaxWait
	case p.Total > 0 && wait > p.Total-now.Sub(c.began):
		return ErrTotal
	case limited && time.Until(deadline) <= wait:
		return context.DeadlineExceeded
	}
	return nil
}
