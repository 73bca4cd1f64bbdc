package heed

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/heed-go/heed/throttle"
)

// admit waits until the next attempt may be sent and returns it. What comes last
// is what is never given back: a breaker that let somebody through counts it.
func (c *call) admit() (*http.Request, error) {
	if err := c.line(); err != nil {
		return nil, err
	}
	req, err := c.request()
	if err != nil || c.t.Breaker == nil {
		return req, err
	}
	b := c.t.Breaker(req)
	if b == nil {
		return req, nil
	}
	if c.done, err = b.Allow(); err != nil {
		c.done = nil
	}
	return req, err
}

// request returns the request of the next attempt: the caller's own the first time,
// unless something about it has to differ, and else a copy.
func (c *call) request() (*http.Request, error) {
	p := c.retry
	body, fresh := c.body.next(c.req)
	if c.attempts == 0 && !fresh && p.PerAttempt <= 0 && c.key == "" && !c.watches() {
		return c.req, nil
	}
	req := c.req.WithContext(c.timed(p.PerAttempt))
	req.Body = body
	if c.body.source == fromReplay {
		req.GetBody = c.body.replay.getBody
	}
	number := p.AttemptHeader != "" && c.attempts > 0
	prepare := p.Prepare != nil && c.attempts > 0
	if number || prepare || c.key != "" {
		req.Header = req.Header.Clone()
	}
	if c.key != "" {
		req.Header.Set("Idempotency-Key", c.key)
	}
	if number {
		req.Header.Set(p.AttemptHeader, strconv.Itoa(c.attempts+1))
	}
	if prepare {
		if err := p.Prepare(req, c.attempts+1); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// errSlow ends an attempt that has had no answer within Retry.PerAttempt.
var errSlow error = slow{}

type slow struct{}

func (slow) Error() string   { return "heed: no answer within Retry.PerAttempt" }
func (slow) Timeout() bool   { return true }
func (slow) Is(t error) bool { return t == context.DeadlineExceeded }

// timed returns the context of one attempt. It ends if there is no response within d,
// unless d is 0, and when the body of the response has ended.
func (c *call) timed(d time.Duration) context.Context {
	watches := c.watches()
	if d <= 0 && !watches {
		return c.ctx
	}
	ctx, cancel := context.WithCancelCause(c.ctx)
	c.cancel, c.timer = cancel, nil
	if d > 0 {
		c.timer = time.AfterFunc(d, func() { cancel(errSlow) })
	}
	if watches {
		endOn(ctx, cancelOf(c.req), cancel)
	}
	return ctx
}

// watches reports whether Request.Cancel must end the context of the attempt: only
// http.Transport is known to look at it by itself.
func (c *call) watches() bool {
	if cancelOf(c.req) == nil {
		return false
	}
	return !isTransport(c.t.own.base)
}

// answered stops the timer of the attempt and returns err, or errSlow if the timer
// has fired. A response that arrives as the timer fires is closed: its context has
// ended, so its body cannot be read.
func (c *call) answered(ctx context.Context, resp *http.Response, err error) error {
	if c.cancel == nil {
		return err
	}
	if c.timer != nil && !c.timer.Stop() && err == nil && resp.Body != http.NoBody {
		closeBody(resp.Body)
		err = errSlow
	}
	if err != nil && c.ctx.Err() == nil && errors.Is(context.Cause(ctx), errSlow) {
		err = errSlow
	}
	switch {
	case err != nil || resp.Body == http.NoBody:
		c.cancel(nil)
		c.cancel = nil
	case resp.StatusCode == http.StatusSwitchingProtocols:
		c.cancel = nil // the connection is the caller's, and ends with the request's context
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
	return "heed: the server answered " + strconv.Itoa(int(s)) + " " + http.StatusText(int(s))
}

// health returns what a Breaker should think of an answer or failure. A server
// that says to slow down works.
func health(resp *http.Response, err error) error {
	if err == nil && resp.StatusCode >= 500 {
		return statusError(resp.StatusCode)
	}
	return err
}

// roundTrip is Base.RoundTrip, made sure that it keeps its contract.
func (c *call) roundTrip(req *http.Request) (*http.Response, error) {
	c.body.give()
	c.used, c.outcome = true, throttle.Failed // until there is a response
	if copied := req != c.req || c.cancel != nil; copied {
		c.t.running.update(c.req, cancellation{sent: req, stop: c.cancel})
		defer c.t.running.update(c.req, cancellation{})
	}
	resp, err := c.t.own.base.RoundTrip(req)
	switch {
	case resp == nil && err == nil:
		err = errNothing
	case resp != nil && err != nil:
		closeBody(resp.Body)
		resp = nil
	case resp != nil && resp.Body == nil:
		resp.Body = http.NoBody
	}
	if err = c.answered(req.Context(), resp, err); err != nil {
		resp = nil
	}
	c.resp, c.err, c.rest = resp, err, rest{}
	c.tellBreaker(health(resp, err))
	return resp, err
}

// tellBreaker reports err to the Breaker that allowed the attempt, if there is one.
func (c *call) tellBreaker(err error) {
	if done := c.done; done != nil {
		c.done = nil // before the call: it may panic
		done(err)
	}
}

// errNothing is a broken Base: http.RoundTripper forbids it.
var errNothing = errors.New("heed: Base returned neither an answer nor an error")
