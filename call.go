package heed

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/throttle"
)

// A call is one RoundTrip with all its attempts. It is taken from a pool, so that a
// request that is granted immediately and succeeds allocates nothing.
type call struct {
	*lease
	t    *Transport
	req  *http.Request
	said Request // what With said
	once bool    // the request is sent once at most

	retry  *Retry // the policy of the call, with its defaults
	chosen Retry  // that of Transport.RetryFor

	wait waitContext

	tracked int                      // where in the ticket the Tracker's demand is; -1: it has none
	meters  [throttle.MaxDemands]int // where those of Request.Costs are
	metered int                      // how many there are
	limited bool                     // there are demands

	body     body
	key      string      // Idempotency-Key made for it; "": none
	timer    *time.Timer // runs cancel
	done     func(error) // of the Breaker; nil: it waits for nothing
	attempts int         // sent
	failures int         // of those, with an answer or error other than "slow down"
	resp     *http.Response
	err      error
	told     time.Duration      // Retry-After, as the Tracker understood it
	now      time.Time          // of resp or err; zero if it is good
	sentAt   time.Time          // when the latest attempt was granted; zero: it passed no limit
	windows  [2]throttle.Window // room for those of an answer
	rest     rest               // what was read of resp to discard it
	reason   error              // why it is not sent again; nil: it need not be
	stopped  bool               // reason came from Retry.Again, and is to be returned
	returned bool               // RoundTrip returns in the usual way: nothing has panicked

	policy  backoff.Policy // of this call; nil: nothing has failed yet
	drawn   time.Duration  // what policy returned last
	repeats int            // responses that stated a Retry-After of 0
	delay   time.Duration  // before the next attempt
	began   time.Time      // when the first attempt had failed
	spare   time.Duration  // half of the time that the caller gave for the call; 0: no deadline, or not known yet
	info    Info
	past    []Attempt // those that were discarded
}

var calls = sync.Pool{New: func() any { return new(call) }}

// begin returns a call for req.
func (t *Transport) begin(req *http.Request) *call {
	c := calls.Get().(*call)
	if c.lease == nil {
		c.lease = leases.Get().(*lease)
	}
	c.t, c.req, c.lease.t, c.ctx = t, req, t, req.Context()
	c.said = RequestFrom(c.ctx)
	t.running.end(req) // what was canceled before has no effect on a call that begins
	return c
}

// choose takes the policy of the call, which says how its body is sent and how long
// it may wait.
func (c *call) choose() {
	t, req := c.t, c.req
	c.retry = &t.own.retry
	if t.RetryFor != nil {
		if r := t.RetryFor(req); r != nil {
			c.chosen = r.filled(t.own.retry.Budget)
			c.retry = &c.chosen
		}
	}
	p := c.retry
	if c.once = c.said.NoRetry || p.Throttled <= 1 || callerRetries(req.Header); c.once {
		c.body.source = sentOnce
	} else {
		c.body = bodyOf(req, p.KeepBody)
		if p.NewKey != nil && !c.harmless() {
			c.key = p.NewKey()
		}
	}
	c.ticket.Priority = int32(min(max(c.said.Priority, math.MinInt32), math.MaxInt32))
	c.ticket.MaxTold = c.mostTold()
}

// harmless reports whether the request is idempotent.
func (c *call) harmless() bool {
	return harmless(c.req, c.said) || c.retry.Idempotent != nil && c.retry.Idempotent(c.req)
}

// end releases what the call holds, also if a hook, a limiter or Base panicked.
func (c *call) end() {
	c.t.running.end(c.req)
	if !c.returned {
		c.body.finish(c.req)
		if c.resp != nil {
			closeBody(c.resp.Body)
		}
	}
	l := c.lease
	if l != nil { // no response took it over
		c.drop()
		*l = lease{}
	}
	*c = call{lease: l}
	calls.Put(c)
}

// drop ends an attempt that gets no response: its context, its place with the
// Breaker and its claim. Units of an attempt that was not sent are given back.
func (c *call) drop() {
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.held && !c.used {
		c.held = false
		c.t.own.waiter.Cancel(c.detached(), &c.ticket)
	}
	c.release()
	c.tellBreaker(errNothing)
}

// send sends one attempt and tells the limits what came of it.
func (c *call) send(req *http.Request) (*http.Response, error) {
	c.attempts++
	if f := c.t.own.trace.Send; f != nil {
		f(req, Step{Attempt: c.attempts})
	}
	c.sentAt = c.ticket.GrantedAt()
	resp, err := c.roundTrip(req)
	var now time.Time // where nothing is read, nobody needs it
	if err != nil || resp.StatusCode >= 400 {
		now = c.t.now()
	}
	f := c.t.own.quota.Feedback(c.req, c.quota(), resp, err, now, c.windows[:0])
	f.More = lasts(resp) && c.holdsUntilEnd()
	c.t.own.waiter.Observe(c.detached(), &c.ticket, f)
	c.held, c.outcome, c.told = f.More, f.Outcome, f.RetryAfter
	c.now = f.Now
	c.observeLatency()
	if f := c.t.own.trace.Answer; f != nil {
		f(c.req, Step{Attempt: c.attempts, Response: resp, Err: err})
	}
	return resp, err
}

// observeLatency reports how long the server took to accept the attempt. Only attempts
// that had to pass a limit are measured: others cannot have been delayed.
func (c *call) observeLatency() {
	if !c.limited || c.outcome != throttle.Accepted || c.sentAt.IsZero() {
		return
	}
	if c.ticket.Waited() == 0 && c.sentAt.UnixNano()>>10&15 != 0 {
		return // one of 16 suffices where none waits
	}
	now := c.now
	if now.IsZero() {
		now = c.t.now()
	}
	c.t.own.quota.ObserveLatency(c.req, now.Sub(c.sentAt), now)
}

// pause discards the answer that is not final and sleeps.
func (c *call) pause() error {
	if f := c.t.own.trace.Retry; f != nil {
		f(c.req, Step{Attempt: c.attempts, Response: c.resp, Err: c.err, Delay: c.delay})
	}
	c.rest = discard(c.ctx, c.resp)
	c.release()
	c.past = append(c.past, c.attempt())
	if err := c.body.rewind(c.ctx); err != nil {
		return err
	}
	if c.delay <= 0 {
		return nil
	}
	start, ctx := c.t.now(), c.waiting(false)
	err := sleep(ctx, c.t.Clock, c.delay)
	ctx.end()
	c.info.Paused += c.t.now().Sub(start)
	return err
}

// attempt returns what came of the latest one.
func (c *call) attempt() Attempt {
	if c.resp == nil {
		return Attempt{Err: c.err}
	}
	return Attempt{Status: c.resp.StatusCode, Body: c.rest.snippet()}
}

// answer returns what the last attempt brought.
func (c *call) answer() (*http.Response, error) {
	c.body.finish(c.req)
	if c.reason != nil {
		if f := c.t.own.trace.GiveUp; f != nil {
			f(c.req, Step{Attempt: c.attempts, Response: c.resp, Err: c.err, Reason: c.reason})
		}
	}
	if c.stopped {
		c.rest = discard(c.ctx, c.resp)
		c.release()
	}
	if c.resp == nil || c.stopped {
		if c.reason == nil && c.attempts == 1 {
			return nil, c.err
		}
		c.past = append(c.past, c.attempt())
		return nil, c.giveUp()
	}
	return c.hand(), nil
}

// hand returns the answer as the caller gets it.
func (c *call) hand() *http.Response {
	c.info.Attempts, c.info.GaveUp = c.attempts, c.reason
	if r := c.t.own.quota.Reader; r != nil || c.info.eventful() {
		attach(c.resp, c.req, c.info, r)
	}
	resp := c.resp
	if (c.held || c.cancel != nil) && lasts(resp) {
		resp.Body = c.lease.upTo(resp)
		c.lease = nil
	}
	return resp
}

// refuse ends a call that cannot be sent as it is.
func (c *call) refuse(err error) (*http.Response, error) {
	c.body.finish(c.req)
	return nil, err
}

// abandon ends a call that is between two attempts, or before the first, because
// of err: the last answer if it is still whole, unless the caller has gone.
func (c *call) abandon(err error) (*http.Response, error) {
	c.drop()
	c.body.finish(c.req)
	c.reason = err
	if f := c.t.own.trace.GiveUp; f != nil {
		f(c.req, Step{Attempt: c.attempts, Response: c.resp, Err: c.err, Reason: err})
	}
	switch {
	case c.attempts == 0 && (c.gone() != nil || !isWait(err)):
		return nil, err
	case c.gone() == nil && c.resp != nil && c.rest.whole:
		c.resp.Body = c.rest.reader()
		return c.hand(), nil
	}
	return nil, c.giveUp()
}

// isWait reports whether err says that a wait would have been too long.
func isWait(err error) bool {
	var r *throttle.RefusedError
	return errors.As(err, &r) || errors.Is(err, ErrMaxWait) || errors.Is(err, context.DeadlineExceeded)
}

func (c *call) giveUp() error {
	e := &GiveUpError{
		Method:   c.req.Method,
		URL:      public(c.req.URL),
		Attempts: c.past,
		InLine:   c.info.InLine,
		Paused:   c.info.Paused,
		Reason:   c.reason,
		Err:      c.err,
	}
	if e.Method == "" {
		e.Method = http.MethodGet
	}
	return e
}
