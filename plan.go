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
	c.reason = nil
	p := c.retry
	good := err == nil && resp.StatusCode < 400 && c.outcome != throttle.Throttled
	if c.once || good && p.Again == nil || c.settled() {
		return false
	}
	if c.now.IsZero() {
		c.now = c.t.now()
	}
	v, report := c.judge()
	safe := c.key != "" || c.harmless()
	again := v == always || v == idempotent && safe
	if p.Again != nil {
		again, c.reason = p.Again(c.req, resp, err, again)
		c.stopped = c.reason != nil
	}
	switch {
	case c.stopped:
		return false
	case again:
		c.reason = c.plan(c.now, report)
		return c.reason == nil
	case v == idempotent && !safe:
		c.reason = ErrUnsafe
	case v == final && forbidden(resp):
		c.reason = ErrRetryForbidden
	}
	return false
}

// judge returns what resp or err is worth, and what the answer says of limits.
func (c *call) judge() (verdict, quota.Report) {
	if c.err != nil {
		v := verdictOnError(c.err)
		if v == idempotent && !overHTTP(c.req.URL) && !isNetwork(c.err) {
			v = final // most likely a scheme that is not registered, which has no type
		}
		return v, quota.Report{}
	}
	report := c.t.own.quota.Report(c.req, c.resp, c.now)
	if c.told > report.RetryAfter { // in the body
		report.RetryAfter, report.HasRetryAfter = c.told, true
	}
	if c.key != "" && c.resp.StatusCode == http.StatusConflict {
		return idempotent, report // the first attempt is still at work on our key
	}
	if report.Permanent {
		return final, report // waiting does not cure it
	}
	return verdictOn(c.resp, c.outcome, report.HasRetryAfter), report
}

// settled reports whether nobody wants another attempt: the caller has gone, or
// a Transport below has given up already, so that attempts do not multiply.
func (c *call) settled() bool {
	if c.err != nil {
		if why := c.gone(); why != nil {
			if c.attempts > 1 {
				c.reason = why
			}
			return true
		}
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
	p := c.retry
	if c.began.IsZero() {
		c.began, c.policy = now, backoff.ForCall(p.Backoff)
	}
	throttled := c.outcome == throttle.Throttled
	if !throttled {
		c.failures++
	}
	if c.failures >= p.Attempts {
		return spent(ErrAttempts, "Retry.Attempts", p.Attempts)
	}
	if c.attempts >= p.Throttled {
		return spent(ErrAttempts, "Retry.Throttled", p.Throttled)
	}
	c.delay = 0
	wait, gated := time.Duration(0), false
	stated := time.Duration(0)
	if throttled && !c.mayRepeat(r) {
		stated = c.stated(r)
		wait, gated = c.gate(max(r.RetryAfter, p.Floor.Least))
	}
	if !gated {
		c.delay = c.backoff(r)
		wait = c.delay
	}
	if err := c.affords(now, max(wait, stated), gated); err != nil {
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

// backoff returns the pause of this call alone. Jitter does not lead beyond the
// longest wait that is allowed if what the server said does not.
func (c *call) backoff(r quota.Report) time.Duration {
	p := c.retry
	if c.mayRepeat(r) {
		return c.repeat()
	}
	if said := max(r.RetryAfter, c.told); r.HasRetryAfter || said > 0 {
		d := p.Floor.Delay(said, c.attempts)
		if most := c.mostWait(); said <= most {
			d = min(d, most)
		}
		return d
	}
	c.drawn = c.policy.Delay(c.attempts, c.drawn)
	return c.drawn
}

// stated returns how long a refusal says that it lasts: its Retry-After, or else the
// longest time until a limit is reset that is used up, or of which nothing else is
// said.
func (c *call) stated(r quota.Report) (d time.Duration) {
	if d = max(r.RetryAfter, c.told); r.HasRetryAfter || d > 0 {
		return d
	}
	for _, l := range r.Limits {
		if l.HasReset && (!l.HasRemaining || l.Remaining <= 0) {
			d = max(d, l.ResetAfter)
		}
	}
	return d
}

// mayRepeat reports whether the server stated a Retry-After of 0, and Retry.Floor
// does not say that it counts as more. A date that has passed is not a 0: clocks
// differ.
func (c *call) mayRepeat(r quota.Report) bool {
	relative := r.RetryForm == quota.DeltaSeconds || r.RetryForm == quota.DeltaMillis
	return relative && max(r.RetryAfter, c.told) < time.Microsecond && c.retry.Floor.Least <= 0
}

// repeat returns the delay after a Retry-After of 0: none after the first one of the
// call. After each one that follows it is a tenth of what the policy says, which
// grows, so that a server that always states 0 is not asked at the pace of the
// network.
func (c *call) repeat() time.Duration {
	c.repeats++
	if c.repeats == 1 {
		return 0
	}
	c.drawn = c.policy.Delay(c.repeats-1, c.drawn)
	if c.drawn == backoff.Never {
		return c.drawn
	}
	return c.drawn / 10
}

// mostWait returns the longest wait between two attempts.
func (c *call) mostWait() time.Duration {
	switch {
	case c.said.NoWait:
		return 0
	case c.said.MaxWait > 0:
		return c.said.MaxWait
	}
	return c.retry.MaxWait
}

// errMaxWait returns ErrMaxWait with the setting that mostWait returns.
func (c *call) errMaxWait() error {
	switch {
	case c.said.NoWait:
		return spent(ErrMaxWait, "Request.NoWait", true)
	case c.said.MaxWait > 0:
		return spent(ErrMaxWait, "Request.MaxWait", c.said.MaxWait)
	}
	return spent(ErrMaxWait, "Retry.MaxWait", c.retry.MaxWait)
}

// gate reports whether the server's limits, as the Tracker knows them, are shut now
// for as long as the server said, and returns for how long at least; 0: not known.
// Then everybody whom they concern waits in line for them, and is let go one by
// one: to pause alone besides would only lose the turn.
func (c *call) gate(said time.Duration) (wait time.Duration, shut bool) {
	m := c.t.own.quota.Demand(c.req)
	if m.Limiter == nil {
		return 0, false
	}
	d, err := m.Limiter.Reserve(c.ctx, throttle.Claim{Key: m.Key, Cost: m.Cost, DryRun: true})
	return d.Wait, err == nil && !d.OK && (d.Wait == 0 || d.Wait >= said)
}

// mostTold returns the longest wait in line that a server may impose: the Tracker
// lets requests go a little later than they were told to, at random, and that alone
// does not make a wait too long.
func (c *call) mostTold() time.Duration {
	most := c.mostWait()
	return min(most, throttle.Forever-time.Second) + min(most/40, time.Second)
}

// affords returns an error if a wait that begins now would be too long.
func (c *call) affords(now time.Time, wait time.Duration, gated bool) error {
	p, most := c.retry, c.mostWait()
	if gated && c.told <= most {
		most = c.mostTold()
	}
	deadline, limited := c.ctx.Deadline()
	switch {
	case c.delay == backoff.Never:
		return spent(ErrAttempts, "the delay of Retry.Backoff", "backoff.Never")
	case wait > most:
		return c.errMaxWait()
	case wait > p.MaxElapsed-now.Sub(c.began):
		return spent(ErrMaxElapsed, "Retry.MaxElapsed", p.MaxElapsed)
	case limited && time.Until(deadline) <= wait:
		return context.DeadlineExceeded
	}
	return nil
}
