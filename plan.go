package heed

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// shouldRetry decides whether what came of the latest attempt is not final, and then how
// long to pause. If it is a failure and final, reason says why.
func (rt *roundTrip) shouldRetry(resp *http.Response, err error) bool {
	rt.stopReason = nil
	p := rt.retry
	succeeded := err == nil && resp.StatusCode < 400 && rt.outcome != throttle.Throttled
	if rt.noRetry || succeeded && p.ShouldRetry == nil || rt.isTerminal() {
		return false
	}
	if rt.endedAt.IsZero() {
		rt.endedAt = rt.t.now()
	}
	class, report := rt.classify()
	safe := rt.idempotencyKey != "" || rt.isIdempotent()
	retry := class == retryAlways || class == retryIdempotent && safe
	if p.ShouldRetry != nil {
		retry, rt.stopReason = p.ShouldRetry(rt.req, resp, err, retry)
		rt.stoppedByHook = rt.stopReason != nil
	}
	switch {
	case rt.stoppedByHook:
		return false
	case retry:
		rt.stopReason = rt.prepareRetry(rt.endedAt, report)
		return rt.stopReason == nil
	case class == retryIdempotent && !safe:
		rt.stopReason = ErrNotIdempotent
	case class == retryNever && forbidsRetry(resp):
		rt.stopReason = ErrRetryForbidden
	}
	return false
}

// classify returns what resp or err is worth, and what the answer says of limits.
func (rt *roundTrip) classify() (retryClass, headers.Report) {
	if rt.err != nil {
		class := classifyError(rt.err)
		if class == retryIdempotent && !isHTTP(rt.req.URL) && !isNetworkError(rt.err) {
			class = retryNever // most likely a scheme that is not registered, which has no type
		}
		return class, headers.Report{}
	}
	report := rt.t.resolved.quota.Report(rt.req, rt.resp, rt.endedAt)
	if rt.retryAfter > report.RetryAfter { // in the body
		report.RetryAfter, report.HasRetryAfter = rt.retryAfter, true
	}
	if rt.idempotencyKey != "" && rt.resp.StatusCode == http.StatusConflict {
		return retryIdempotent, report // the first attempt is still at work on our key
	}
	if report.Permanent {
		return retryNever, report // waiting does not cure it
	}
	return classifyResponse(rt.resp, rt.outcome, report.HasRetryAfter), report
}

// isTerminal reports whether nobody wants another attempt: the caller has gone, or
// a Transport below has given up already, so that attempts do not multiply.
func (rt *roundTrip) isTerminal() bool {
	if rt.err != nil {
		if cause := rt.cancelCause(); cause != nil {
			if rt.attempts > 1 {
				rt.stopReason = cause
			}
			return true
		}
	}
	var below *GiveUpError
	if errors.As(rt.err, &below) {
		return true
	}
	n := infoContextOf(rt.resp)
	return n != nil && n.info.StopReason != nil
}

// prepareRetry prepares the next attempt, or returns why there can be none.
func (rt *roundTrip) prepareRetry(now time.Time, r headers.Report) error {
	p := rt.retry
	if rt.firstEnd.IsZero() {
		rt.firstEnd, rt.backoffPolicy = now, backoff.ForCall(p.Backoff)
	}
	throttled := rt.outcome == throttle.Throttled
	if !throttled {
		rt.failures++
	}
	if rt.failures >= p.MaxAttempts {
		return withSetting(ErrMaxAttempts, "RetryPolicy.MaxAttempts", p.MaxAttempts)
	}
	if rt.attempts >= p.MaxThrottledAttempts {
		return withSetting(ErrMaxAttempts, "RetryPolicy.MaxThrottledAttempts", p.MaxThrottledAttempts)
	}
	rt.delay = 0
	wait, held := time.Duration(0), false
	statedWait := time.Duration(0)
	if throttled && !rt.retryAfterIsZero(r) {
		statedWait = rt.statedWait(r)
		wait, held = rt.hostHeld(max(r.RetryAfter, p.RetryAfterJitter.Min))
	}
	if !held {
		rt.delay = rt.backoffDelay(r)
		wait = rt.delay
	}
	if err := rt.checkDeadlines(now, max(wait, statedWait), held); err != nil {
		return err
	}
	if err := rt.body.checkReplayable(rt.req); err != nil {
		return err
	}
	if !held && !p.Budget.Withdraw(now) {
		return ErrRetryBudget
	}
	return nil
}

// backoffDelay returns the pause of this call alone. Jitter does not lead beyond the
// longest wait that is allowed if what the server said does not.
func (rt *roundTrip) backoffDelay(r headers.Report) time.Duration {
	p := rt.retry
	if rt.retryAfterIsZero(r) {
		return rt.zeroRetryAfterDelay()
	}
	if retryAfter := max(r.RetryAfter, rt.retryAfter); r.HasRetryAfter || retryAfter > 0 {
		d := p.RetryAfterJitter.Delay(retryAfter, rt.attempts)
		if maxWait := rt.maxWait(); retryAfter <= maxWait {
			d = min(d, maxWait)
		}
		return d
	}
	rt.lastDelay = rt.backoffPolicy.Delay(rt.attempts, rt.lastDelay)
	return rt.lastDelay
}

// statedWait returns how long a refusal says that it lasts: its Retry-After, or else the
// longest time until a limit is reset that is used up, or of which nothing else is
// said.
func (rt *roundTrip) statedWait(r headers.Report) (d time.Duration) {
	if d = max(r.RetryAfter, rt.retryAfter); r.HasRetryAfter || d > 0 {
		return d
	}
	for _, l := range r.Limits {
		if l.HasReset && (!l.HasRemaining || l.Remaining <= 0) {
			d = max(d, l.ResetAfter)
		}
	}
	return d
}

// retryAfterIsZero reports whether the server stated a Retry-After of 0, and RetryPolicy.RetryAfterJitter
// does not say that it counts as more. A date that has passed is not a 0: clocks
// differ.
func (rt *roundTrip) retryAfterIsZero(r headers.Report) bool {
	relative := r.RetryFormat == headers.FormatDeltaSeconds || r.RetryFormat == headers.FormatDeltaMillis
	return relative && max(r.RetryAfter, rt.retryAfter) < time.Microsecond && rt.retry.RetryAfterJitter.Min <= 0
}

// zeroRetryAfterDelay returns the delay after a Retry-After of 0: none after the first one of the
// call. After each one that follows it is a tenth of what the policy says, which
// grows, so that a server that always states 0 is not asked at the pace of the
// network.
func (rt *roundTrip) zeroRetryAfterDelay() time.Duration {
	rt.zeroRetryAfters++
	if rt.zeroRetryAfters == 1 {
		return 0
	}
	rt.lastDelay = rt.backoffPolicy.Delay(rt.zeroRetryAfters-1, rt.lastDelay)
	if rt.lastDelay == backoff.Stop {
		return rt.lastDelay
	}
	return rt.lastDelay / 10
}

// maxWait returns the longest wait between two attempts.
func (rt *roundTrip) maxWait() time.Duration {
	switch {
	case rt.opts.NoWait:
		return 0
	case rt.opts.MaxWait > 0:
		return rt.opts.MaxWait
	}
	return rt.retry.MaxWait
}

// errMaxWait returns ErrMaxWait with the setting that maxWait returns.
func (rt *roundTrip) errMaxWait() error {
	switch {
	case rt.opts.NoWait:
		return withSetting(ErrMaxWait, "RequestOptions.NoWait", true)
	case rt.opts.MaxWait > 0:
		return withSetting(ErrMaxWait, "RequestOptions.MaxWait", rt.opts.MaxWait)
	}
	return withSetting(ErrMaxWait, "RetryPolicy.MaxWait", rt.retry.MaxWait)
}

// hostHeld reports whether the server's limits, as the Tracker knows them, are shut now
// for as long as the server said, and returns for how long at least; 0: not known.
// Then everybody whom they concern waits in line for them, and is let go one by
// one: to pause alone besides would only lose the turn.
func (rt *roundTrip) hostHeld(minWait time.Duration) (wait time.Duration, held bool) {
	m := rt.t.resolved.quota.Demand(rt.req)
	if m.Limiter == nil {
		return 0, false
	}
	d, err := m.Limiter.Reserve(rt.ctx, throttle.Claim{Key: m.Key, Cost: m.Cost, DryRun: true})
	return d.Wait, err == nil && !d.OK && (d.Wait == 0 || d.Wait >= minWait)
}

// maxServerWait returns the longest wait in line that a server may impose: the Tracker
// lets requests go a little later than they were told to, at random, and that alone
// does not make a wait too long.
func (rt *roundTrip) maxServerWait() time.Duration {
	maxWait := rt.maxWait()
	return min(maxWait, throttle.Forever-time.Second) + min(maxWait/40, time.Second)
}

// checkDeadlines returns an error if a wait that begins now would be too long.
func (rt *roundTrip) checkDeadlines(now time.Time, wait time.Duration, held bool) error {
	p, maxWait := rt.retry, rt.maxWait()
	if held && rt.retryAfter <= maxWait {
		maxWait = rt.maxServerWait()
	}
	deadline, hasDeadline := rt.ctx.Deadline()
	switch {
	case rt.delay == backoff.Stop:
		return withSetting(ErrMaxAttempts, "the delay of RetryPolicy.Backoff", "backoff.Stop")
	case wait > maxWait:
		return rt.errMaxWait()
	case wait > p.MaxElapsed-now.Sub(rt.firstEnd):
		return withSetting(ErrMaxElapsed, "RetryPolicy.MaxElapsed", p.MaxElapsed)
	case hasDeadline && time.Until(deadline) <= wait:
		return context.DeadlineExceeded
	}
	return nil
}
