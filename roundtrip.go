package heed

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/httpbody"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A roundTrip is one RoundTrip with all its attempts. It is taken from a pool, so that a
// request that is granted immediately and succeeds allocates nothing.
type roundTrip struct {
	*attemptResources
	t       *Transport
	req     *http.Request
	opts    RequestOptions // what With said
	noRetry bool           // the request is sent once at most

	retry       *RetryPolicy // the policy of the call, with its defaults
	routePolicy RetryPolicy  // that of Transport.RetryFor

	waitCtx waitContext

	quotaSlot  int                   // where in the ticket the Tracker's demand is; -1: it has none
	unitSlots  [queue.MaxDemands]int // where those of RequestOptions.Costs are
	unitCount  int                   // how many there are
	hasDemands bool                  // there are demands

	body           body
	idempotencyKey string      // Idempotency-Key made for it; "": none
	timer          *time.Timer // runs cancel
	breakerDone    func(error) // of the Breaker; nil: it waits for nothing
	attempts       int         // sent
	failures       int         // of those, with an answer or error other than "slow down"
	resp           *http.Response
	err            error
	retryAfter     time.Duration           // Retry-After, as the Tracker understood it
	endedAt        time.Time               // of resp or err; zero if it is good
	sentAt         time.Time               // when the latest attempt was granted; zero: it passed no limit
	limitBuf       [2]throttle.RemoteLimit // room for those of an answer
	drained        drained                 // what was read of resp to discard it
	stopReason     error                   // why it is not sent again; nil: it need not be
	stoppedByHook  bool                    // reason came from RetryPolicy.ShouldRetry, and is to be returned
	returned       bool                    // RoundTrip returns in the usual way: nothing has panicked

	backoffPolicy   backoff.Policy // of this call; nil: nothing has failed yet
	lastDelay       time.Duration  // what policy returned last
	zeroRetryAfters int            // responses that stated a Retry-After of 0
	delay           time.Duration  // before the next attempt
	firstEnd        time.Time      // when the first attempt had failed
	latencyBudget   time.Duration  // half of the time that the caller gave for the call; 0: no deadline, or not known yet
	info            Info
	pastAttempts    []Attempt // those that were discarded
}

var roundTripPool = sync.Pool{New: func() any { return new(roundTrip) }}

// newRoundTrip returns a call for req.
func (t *Transport) newRoundTrip(req *http.Request) *roundTrip {
	rt := roundTripPool.Get().(*roundTrip)
	if rt.attemptResources == nil {
		rt.attemptResources = attemptResourcesPool.Get().(*attemptResources)
	}
	rt.t, rt.req, rt.attemptResources.t, rt.ctx = t, req, t, req.Context()
	rt.opts = OptionsFrom(rt.ctx)
	t.cancellations.end(req) // what was canceled before has no effect on a call that begins
	return rt
}

// resolvePolicy takes the policy of the call, which says how its body is sent and how long
// it may wait.
func (rt *roundTrip) resolvePolicy() {
	t, req := rt.t, rt.req
	rt.retry = &t.resolved.retry
	if t.RetryFor != nil {
		if r := t.RetryFor(req); r != nil {
			rt.routePolicy = r.withDefaults(t.resolved.retry.Budget)
			rt.retry = &rt.routePolicy
		}
	}
	p := rt.retry
	if rt.noRetry = rt.opts.NoRetry || p.MaxThrottledAttempts <= 1 || callerRetries(req.Header); rt.noRetry {
		rt.body.source = sentOnce
	} else {
		rt.body = bodyOf(req, p.MaxBodyBuffer)
		if p.IdempotencyKey != nil && !rt.isIdempotent() {
			rt.idempotencyKey = p.IdempotencyKey()
		}
	}
	rt.ticket.Priority = int32(min(max(rt.opts.Priority, math.MinInt32), math.MaxInt32))
	rt.ticket.MaxServerWait = rt.maxServerWait()
}

// isIdempotent reports whether the request is idempotent.
func (rt *roundTrip) isIdempotent() bool {
	return isIdempotent(rt.req, rt.opts) || rt.retry.Idempotent != nil && rt.retry.Idempotent(rt.req)
}

// end releases what the call holds, also if a hook, a limiter or Base panicked.
func (rt *roundTrip) end() {
	rt.t.cancellations.end(rt.req)
	if !rt.returned {
		rt.body.finish(rt.req)
		if rt.resp != nil {
			closeBody(rt.resp.Body)
		}
	}
	l := rt.attemptResources
	if l != nil { // no response took it over
		rt.endAttempt()
		*l = attemptResources{}
	}
	*rt = roundTrip{attemptResources: l}
	roundTripPool.Put(rt)
}

// endAttempt ends an attempt that gets no response: its context, its place with the
// Breaker and its claim. Units of an attempt that was not sent are given back.
func (rt *roundTrip) endAttempt() {
	if rt.timer != nil {
		rt.timer.Stop()
	}
	if rt.granted && !rt.sentToBase {
		rt.granted = false
		rt.t.resolved.queue.Cancel(rt.detached(), &rt.ticket)
	}
	rt.release()
	rt.reportToBreaker(errNoResult)
}

// send sends one attempt and tells the limits what came of it.
func (rt *roundTrip) send(req *http.Request) (*http.Response, error) {
	rt.attempts++
	if f := rt.t.resolved.trace.AttemptStart; f != nil {
		f(req, TraceInfo{Attempt: rt.attempts})
	}
	rt.sentAt = rt.ticket.GrantedAt()
	resp, err := rt.sendToBase(req)
	var now time.Time // where nothing is read, nobody needs it
	if err != nil || resp.StatusCode >= 400 {
		now = rt.t.now()
	}
	f := rt.t.resolved.quota.Feedback(rt.req, rt.quotaDemand(), resp, err, now, rt.limitBuf[:0])
	f.Partial = hasOpenBody(resp) && rt.holdsUntilEnd()
	rt.t.resolved.queue.Observe(rt.detached(), &rt.ticket, f)
	rt.granted, rt.outcome, rt.retryAfter = f.Partial, f.Outcome, f.RetryAfter
	rt.endedAt = f.Now
	rt.observeLatency()
	if f := rt.t.resolved.trace.AttemptDone; f != nil {
		f(rt.req, TraceInfo{Attempt: rt.attempts, Response: resp, Err: err})
	}
	return resp, err
}

// observeLatency reports how long the server took to accept the attempt. Only attempts
// that had to pass a limit are measured: others cannot have been delayed.
func (rt *roundTrip) observeLatency() {
	if !rt.hasDemands || rt.outcome != throttle.Accepted || rt.sentAt.IsZero() {
		return
	}
	if rt.ticket.Waited() == 0 && rt.sentAt.UnixNano()>>10&15 != 0 {
		return // one of 16 suffices where none waits
	}
	now := rt.endedAt
	if now.IsZero() {
		now = rt.t.now()
	}
	rt.t.resolved.quota.ObserveLatency(rt.req, now.Sub(rt.sentAt), now)
}

// waitForRetry discards the answer that is not final and sleeps.
func (rt *roundTrip) waitForRetry() error {
	if f := rt.t.resolved.trace.Retry; f != nil {
		f(rt.req, TraceInfo{Attempt: rt.attempts, Response: rt.resp, Err: rt.err, Delay: rt.delay})
	}
	rt.drained = drain(rt.ctx, rt.resp)
	rt.release()
	rt.pastAttempts = append(rt.pastAttempts, rt.attemptResult())
	if err := rt.body.rewind(rt.ctx); err != nil {
		return err
	}
	if rt.delay <= 0 {
		return nil
	}
	start, ctx := rt.t.now(), rt.newWaitContext(false)
	err := httpbody.Sleep(ctx, rt.t.Clock, rt.delay)
	ctx.end()
	rt.info.BackoffWait += rt.t.now().Sub(start)
	return err
}

// attemptResult returns what came of the latest one.
func (rt *roundTrip) attemptResult() Attempt {
	if rt.resp == nil {
		return Attempt{Err: rt.err}
	}
	return Attempt{Status: rt.resp.StatusCode, Body: rt.drained.snippet()}
}

// finish returns what the last attempt brought.
func (rt *roundTrip) finish() (*http.Response, error) {
	rt.body.finish(rt.req)
	if rt.stopReason != nil {
		if f := rt.t.resolved.trace.GiveUp; f != nil {
			f(rt.req, TraceInfo{Attempt: rt.attempts, Response: rt.resp, Err: rt.err, Reason: rt.stopReason})
		}
	}
	if rt.stoppedByHook {
		rt.drained = drain(rt.ctx, rt.resp)
		rt.release()
	}
	if rt.resp == nil || rt.stoppedByHook {
		if rt.stopReason == nil && rt.attempts == 1 {
			return nil, rt.err
		}
		rt.pastAttempts = append(rt.pastAttempts, rt.attemptResult())
		return nil, rt.giveUp()
	}
	return rt.respond(), nil
}

// respond returns the answer as the caller gets it.
func (rt *roundTrip) respond() *http.Response {
	rt.info.Attempts, rt.info.StopReason = rt.attempts, rt.stopReason
	if r := rt.t.resolved.quota.Reader; r != nil || rt.info.nonTrivial() {
		attachInfo(rt.resp, rt.req, rt.info, r)
	}
	resp := rt.resp
	if (rt.granted || rt.cancel != nil) && hasOpenBody(resp) {
		resp.Body = rt.attemptResources.observeBodyEnd(resp)
		rt.attemptResources = nil
	}
	return resp
}

// reject ends a call that cannot be sent as it is.
func (rt *roundTrip) reject(err error) (*http.Response, error) {
	rt.body.finish(rt.req)
	return nil, err
}

// fail ends a call that is between two attempts, or before the first, because
// of err: the last answer if it is still whole, unless the caller has gone.
func (rt *roundTrip) fail(err error) (*http.Response, error) {
	rt.endAttempt()
	rt.body.finish(rt.req)
	rt.stopReason = err
	if f := rt.t.resolved.trace.GiveUp; f != nil {
		f(rt.req, TraceInfo{Attempt: rt.attempts, Response: rt.resp, Err: rt.err, Reason: err})
	}
	switch {
	case rt.attempts == 0 && (rt.cancelCause() != nil || !isWaitError(err)):
		return nil, err
	case rt.cancelCause() == nil && rt.resp != nil && rt.drained.complete:
		rt.resp.Body = rt.drained.reader()
		return rt.respond(), nil
	}
	return nil, rt.giveUp()
}

// isWaitError reports whether err says that a wait would have been too long.
func isWaitError(err error) bool {
	var r *throttle.RefusedError
	return errors.As(err, &r) || errors.Is(err, ErrMaxWait) || errors.Is(err, context.DeadlineExceeded)
}

func (rt *roundTrip) giveUp() error {
	e := &GiveUpError{
		Method:      rt.req.Method,
		URL:         httpbody.RedactURL(rt.req.URL),
		Attempts:    rt.pastAttempts,
		QueueWait:   rt.info.QueueWait,
		BackoffWait: rt.info.BackoffWait,
		Reason:      rt.stopReason,
		Err:         rt.err,
	}
	if e.Method == "" {
		e.Method = http.MethodGet
	}
	return e
}
