package heed

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/heed-go/heed/throttle"
)

// nextAttempt waits until the next attempt may be sent and returns it. What comes last
// is what is never given back: a breaker that let somebody through counts it.
func (rt *roundTrip) nextAttempt() (*http.Request, error) {
	if err := rt.acquire(); err != nil {
		return nil, err
	}
	req, err := rt.attemptRequest()
	if err != nil || rt.t.Breaker == nil {
		return req, err
	}
	b := rt.t.Breaker(req)
	if b == nil {
		return req, nil
	}
	if rt.breakerDone, err = b.Allow(); err != nil {
		rt.breakerDone = nil
	}
	return req, err
}

// attemptRequest returns the request of the next attempt: the caller's own the first time,
// unless something about it has to differ, and else a copy.
func (rt *roundTrip) attemptRequest() (*http.Request, error) {
	p := rt.retry
	body, isNew := rt.body.next(rt.req)
	if rt.attempts == 0 && !isNew && p.AttemptTimeout <= 0 && rt.idempotencyKey == "" && !rt.watchesCancel() {
		return rt.req, nil
	}
	req := rt.req.WithContext(rt.withAttemptTimeout(p.AttemptTimeout))
	req.Body = body
	if rt.body.source == fromRewind {
		req.GetBody = rt.body.rewinder.getBody
	}
	setNumber := p.AttemptHeader != "" && rt.attempts > 0
	beforeSend := p.BeforeSend != nil && rt.attempts > 0
	if setNumber || beforeSend || rt.idempotencyKey != "" {
		req.Header = req.Header.Clone()
	}
	if rt.idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", rt.idempotencyKey)
	}
	if setNumber {
		req.Header.Set(p.AttemptHeader, strconv.Itoa(rt.attempts+1))
	}
	if beforeSend {
		if err := p.BeforeSend(req, rt.attempts+1); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// errAttemptTimeout ends an attempt that has had no answer within RetryPolicy.AttemptTimeout.
var errAttemptTimeout error = attemptTimeoutError{}

type attemptTimeoutError struct{}

func (attemptTimeoutError) Error() string {
	return "heed: no response headers within RetryPolicy.AttemptTimeout"
}
func (attemptTimeoutError) Timeout() bool   { return true }
func (attemptTimeoutError) Is(t error) bool { return t == context.DeadlineExceeded }

// withAttemptTimeout returns the context of one attempt. It ends if there is no response within d,
// unless d is 0, and when the body of the response has ended.
func (rt *roundTrip) withAttemptTimeout(d time.Duration) context.Context {
	watches := rt.watchesCancel()
	if d <= 0 && !watches {
		return rt.ctx
	}
	ctx, cancel := context.WithCancelCause(rt.ctx)
	rt.cancel, rt.timer = cancel, nil
	if d > 0 {
		rt.timer = time.AfterFunc(d, func() { cancel(errAttemptTimeout) })
	}
	if watches {
		watchCancel(ctx, cancelOf(rt.req), cancel)
	}
	return ctx
}

// watchesCancel reports whether Request.Cancel must end the context of the attempt: only
// http.Transport is known to look at it by itself.
func (rt *roundTrip) watchesCancel() bool {
	if cancelOf(rt.req) == nil {
		return false
	}
	return !isTransport(rt.t.resolved.base)
}

// stopAttemptTimer stops the timer of the attempt and returns err, or errAttemptTimeout if the timer
// has fired. A response that arrives as the timer fires is closed: its context has
// ended, so its body cannot be read.
func (rt *roundTrip) stopAttemptTimer(ctx context.Context, resp *http.Response, err error) error {
	if rt.cancel == nil {
		return err
	}
	if rt.timer != nil && !rt.timer.Stop() && err == nil && resp.Body != http.NoBody {
		closeBody(resp.Body)
		err = errAttemptTimeout
	}
	if err != nil && rt.ctx.Err() == nil && errors.Is(context.Cause(ctx), errAttemptTimeout) {
		err = errAttemptTimeout
	}
	switch {
	case err != nil || resp.Body == http.NoBody:
		rt.cancel(nil)
		rt.cancel = nil
	case resp.StatusCode == http.StatusSwitchingProtocols:
		rt.cancel = nil // the connection is the caller's, and ends with the request's context
	}
	return err
}

// A Breaker stops requests to a server that is down. The two-step breaker of
// github.com/sony/gobreaker/v2 is one as it is.
type Breaker interface {
	// Allow returns an error if nothing may be sent now, and else a function to
	// call with what came of it: nil if the server works.
	Allow() (done func(error), err error)
}

// statusError is a failing answer as a Breaker hears of it.
type statusError int

func (s statusError) Error() string {
	return "heed: server responded " + strconv.Itoa(int(s)) + " " + http.StatusText(int(s))
}

// breakerResult returns what a Breaker should think of an answer or failure. A server
// that says to slow down works.
func breakerResult(resp *http.Response, err error) error {
	if err == nil && resp.StatusCode >= 500 {
		return statusError(resp.StatusCode)
	}
	return err
}

// sendToBase is Base.RoundTrip, made sure that it keeps its contract.
func (rt *roundTrip) sendToBase(req *http.Request) (*http.Response, error) {
	rt.body.markGiven()
	rt.sentToBase, rt.outcome = true, throttle.Failed // until there is a response
	if copied := req != rt.req || rt.cancel != nil; copied {
		rt.t.cancellations.update(rt.req, cancellation{sent: req, stop: rt.cancel})
		defer rt.t.cancellations.update(rt.req, cancellation{})
	}
	resp, err := rt.t.resolved.base.RoundTrip(req)
	switch {
	case resp == nil && err == nil:
		err = errNoResult
	case resp != nil && err != nil:
		closeBody(resp.Body)
		resp = nil
	case resp != nil && resp.Body == nil:
		resp.Body = http.NoBody
	}
	if err = rt.stopAttemptTimer(req.Context(), resp, err); err != nil {
		resp = nil
	}
	rt.resp, rt.err, rt.drained = resp, err, drained{}
	rt.reportToBreaker(breakerResult(resp, err))
	return resp, err
}

// reportToBreaker reports err to the Breaker that allowed the attempt, if there is one.
func (rt *roundTrip) reportToBreaker(err error) {
	if done := rt.breakerDone; done != nil {
		rt.breakerDone = nil // before the call: it may panic
		done(err)
	}
}

// errNoResult is a broken Base: http.RoundTripper forbids it.
var errNoResult = errors.New("heed: Base returned neither a response nor an error")
