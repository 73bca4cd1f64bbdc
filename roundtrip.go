package heed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/httpbody"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A roundTrip is one call of Transport.RoundTrip with all its attempts. It is taken from a
// pool, so that a request that is granted immediately and succeeds allocates nothing.
//
//	                              ┌───────────────────────────────────────────┐
//	                              ▼                                           │
//	addDemands ─▶ waitForStart ─▶ nextAttempt ─▶ send ─▶ shouldRetry ─ yes ─▶ waitForRetry
//	  │ error       │ error         │ error                │ no                │ error
//	  ▼             ▼               ▼                      ▼                   ▼
//	reject        fail            fail                   finish              fail
//
// After each step, the claims of the ticket, the body of the request and the context of the
// attempt are owned by:
//
//	               claims                    body         context
//	addDemands     none yet                  roundTrip    none yet
//	nextAttempt    roundTrip                 roundTrip    roundTrip, if the attempt has its own
//	send           roundTrip if a limit      Base         roundTrip if the response has a body,
//	               holds until the end of                 else it has ended
//	               the response, else they
//	               have ended
//	shouldRetry    as before                 roundTrip,   as before
//	                                         if yes
//	waitForRetry   ended                     roundTrip    ended
//	finish         body of the response,     closed       body of the response, or ended
//	               or ended
//	fail, reject   ended                     closed       ended
//
// The owner ends a claim with Queue.Cancel if the attempt was not sent, and else with
// Queue.Observe. If a hook, a limiter or Base panics, end does what fail does, and closes the
// body of the response.
type roundTrip struct {
	*attemptResources
	t       *Transport
	req     *http.Request
	opts    RequestOptions // what WithOptions said
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
	stoppedByHook  bool                    // stopReason came from RetryPolicy.ShouldRetry, and is to be returned
	returned       bool                    // RoundTrip returns in the usual way: nothing has panicked

	backoffPolicy   backoff.Policy // of this call; nil: nothing has failed yet
	lastDelay       time.Duration  // what backoffPolicy returned last
	zeroRetryAfters int            // responses that stated a Retry-After of 0
	delay           time.Duration  // before the next attempt
	firstEnd        time.Time      // when the first attempt had failed
	latencyBudget   time.Duration  // half of the time that the caller gave for the call; 0: no deadline, or not known yet
	info            Info
	pastAttempts    []Attempt // those that were discarded
}

var roundTripPool = sync.Pool{New: func() any { return new(roundTrip) }}

// An attemptResources is what a call holds that can last as long as the body of its response:
// the context of the attempt, and the claims of limits that hold until the end. It is
// taken from a pool. The call owns it until RoundTrip returns a response with such a
// body; from then on the body does.
type attemptResources struct {
	t                   *Transport
	ctx                 context.Context // of the request
	detachedCtx         context.Context // ctx without its end; nil: not needed yet
	ticket              queue.Ticket
	hasConfiguredLimits bool                    // there are limits other than the Tracker's
	granted             bool                    // the ticket is granted, and the grant has not ended
	sentToBase          bool                    // Base was given the attempt that the ticket is granted for
	outcome             throttle.Outcome        // of that attempt
	cancel              context.CancelCauseFunc // ends the context of the attempt; nil: it is the request's own
}

var attemptResourcesPool = sync.Pool{New: func() any { return new(attemptResources) }}

// detached returns the context for what ends a claim: it does not end, since what was
// claimed has to be given back also when the caller is gone. The Tracker's limits do
// not look at it.
func (l *attemptResources) detached() context.Context {
	if !l.hasConfiguredLimits || l.ctx.Done() == nil {
		return l.ctx
	}
	if l.detachedCtx == nil {
		l.detachedCtx = context.WithoutCancel(l.ctx)
	}
	return l.detachedCtx
}

// holdsUntilEnd reports whether a limit waits for the end of the body.
func (l *attemptResources) holdsUntilEnd() bool {
	if !l.hasConfiguredLimits {
		return false
	}
	for i := range l.ticket.Demands {
		if throttle.HoldsUntilEnd(l.ticket.Demands[i].Limiter) {
			return true
		}
	}
	return false
}

// nonBlocking reports whether all limits of the ticket answer from memory, and so do not
// look at a context.
func (l *attemptResources) nonBlocking() bool {
	for i := range l.ticket.Demands {
		if x := l.ticket.Demands[i].Limiter; x != nil && !throttle.IsNonBlocking(x) {
			return false
		}
	}
	return true
}

// release ends the context of the attempt and the claim.
func (l *attemptResources) release() {
	if l.cancel != nil {
		l.cancel(nil)
		l.cancel = nil
	}
	if l.granted {
		l.granted = false
		l.t.resolved.queue.Observe(l.detached(), &l.ticket, throttle.Feedback{Now: l.t.now(), Outcome: l.outcome})
	}
}

// newRoundTrip returns a roundTrip for req.
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

// Why a ticket cannot hold all demands of a request.
const (
	errTooManyDemands = invalidRequestError("heed: Transport.Limits set too many demands: one slot of the ticket is reserved for the server's limits, and one for Transport.Limiter; join some with throttle.AllOf")
	errTooManyUnits   = invalidRequestError("heed: RequestOptions.Costs names more units than the ticket has slots for, beside the demands of Transport.Limits and Transport.Limiter")
)

// addDemands puts into the ticket what the call must pass. The Limits hook is called
// first, so that a hook that assigns demands instead of adding them replaces none
// of ours. The error says that the ticket has too few places.
func (rt *roundTrip) addDemands() error {
	t := rt.t
	if t.Limits != nil {
		t.Limits(rt.req, &rt.ticket)
	}
	if t.Limiter != nil {
		if rt.freeSlot() == queue.MaxDemands {
			return errTooManyDemands
		}
		rt.ticket.Add(throttle.Demand{Limiter: t.Limiter, Cost: rt.opts.Cost})
	}
	if rt.freeSlot() == queue.MaxDemands {
		return errTooManyDemands
	}
	for i := range rt.ticket.Demands {
		rt.hasConfiguredLimits = rt.hasConfiguredLimits || rt.ticket.Demands[i].Limiter != nil
	}
	rt.hasDemands = rt.hasConfiguredLimits
	rt.quotaSlot, rt.unitCount = -1, 0
	return rt.addQuotaDemand()
}

// addQuotaDemand asks the Tracker for its demand, which may be another one after each
// response, or none while nothing is known that limits the request. The error is
// errTooManyUnits.
func (rt *roundTrip) addQuotaDemand() error {
	d := rt.t.resolved.quota.Demand(rt.req)
	if rt.quotaSlot < 0 && d.Limiter != nil {
		rt.quotaSlot = rt.freeSlot()
	}
	if rt.quotaSlot >= 0 {
		rt.ticket.Demands[rt.quotaSlot] = d
	}
	if d.Limiter == nil {
		rt.quotaSlot = -1 // its place may be taken for a unit of Costs
	} else {
		rt.hasDemands = true
	}
	return rt.addUnitDemands()
}

// addUnitDemands asks the Tracker for its demands for the units of RequestOptions.Costs. The error
// is errTooManyUnits.
func (rt *roundTrip) addUnitDemands() error {
	for i := range rt.unitCount {
		rt.ticket.Demands[rt.unitSlots[i]] = throttle.Demand{}
	}
	rt.unitCount = 0
	if len(rt.opts.Costs) == 0 {
		return nil
	}
	for _, unit := range slices.Sorted(maps.Keys(rt.opts.Costs)) {
		d := rt.t.resolved.quota.DemandUnits(rt.req, unit, rt.opts.Costs[unit])
		if d.Limiter == nil {
			continue
		}
		i := rt.freeSlot()
		if i == queue.MaxDemands || rt.quotaSlot < 0 && i == queue.MaxDemands-1 {
			return errTooManyUnits
		}
		rt.ticket.Demands[i] = d
		rt.unitSlots[rt.unitCount], rt.unitCount, rt.hasDemands = i, rt.unitCount+1, true
	}
	return nil
}

// freeSlot returns the first place in the ticket without a demand; MaxDemands: none.
func (rt *roundTrip) freeSlot() (i int) {
	for i < queue.MaxDemands && rt.ticket.Demands[i].Limiter != nil {
		i++
	}
	return i
}

// quotaDemand returns the Tracker's demand.
func (rt *roundTrip) quotaDemand() throttle.Demand {
	if rt.quotaSlot < 0 {
		return throttle.Demand{}
	}
	return rt.ticket.Demands[rt.quotaSlot]
}

// waitForStart waits until the Transport begins to send.
func (rt *roundTrip) waitForStart() error {
	t := rt.t
	t.startDelay.once.Do(func() {
		offset := t.StartSeed
		if offset == 0 {
			offset = backoff.RandomOffset()
		}
		t.startDelay.at = t.now().Add(offset.In(t.StartJitter))
	})
	now := t.now()
	wait := t.startDelay.at.Sub(now)
	if wait <= 0 {
		t.startDelay.passed.Store(true)
		return nil
	}
	reason := error(nil)
	switch deadline, hasDeadline := rt.ctx.Deadline(); {
	case (rt.opts.NoWait || rt.opts.MaxWait > 0) && wait > rt.maxWait():
		reason = rt.errMaxWait()
	case hasDeadline && time.Until(deadline) <= wait:
		reason = context.DeadlineExceeded
	}
	if reason != nil {
		return fmt.Errorf("heed: Transport.StartJitter delays the first request by another %v: %w", wait, reason)
	}
	ctx := rt.newWaitContext(false)
	err := httpbody.Sleep(ctx, t.Clock, wait)
	ctx.end()
	rt.info.BackoffWait += t.now().Sub(now)
	return err
}

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

// tryAcquire is wait for a request that does not wait.
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

// budgetBatch is how many calls that no limit concerns are counted at a time.
const budgetBatch = 16

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

// breakerResult returns what a Breaker should think of an answer or failure. A server
// that says to slow down works.
func breakerResult(resp *http.Response, err error) error {
	if err == nil && resp.StatusCode >= 500 {
		return statusError(resp.StatusCode)
	}
	return err
}

// reportToBreaker reports err to the Breaker that allowed the attempt, if there is one.
func (rt *roundTrip) reportToBreaker(err error) {
	if done := rt.breakerDone; done != nil {
		rt.breakerDone = nil // before the call: it may panic
		done(err)
	}
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

// A waitContext is the context of one wait of a call. It ends with that of the
// request, and when the request is cancelled otherwise. Most waits are over before
// they block: so what tells of the end is made by the first Done.
type waitContext struct {
	context.Context // of the request

	mu        sync.Mutex
	roundTrip *roundTrip // nil: the wait is over
	derived   context.Context
	stop      context.CancelCauseFunc
}

// newWaitContext returns the context of a wait that begins. It must be ended. If shared is
// false, nobody keeps the context when the wait is over, and it is part of rt.
func (rt *roundTrip) newWaitContext(shared bool) *waitContext {
	w := &rt.waitCtx
	if shared {
		w = new(waitContext)
	}
	w.Context, w.roundTrip, w.derived, w.stop = rt.ctx, rt, nil, nil
	return w
}

// Done implements context.Context.
func (w *waitContext) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.derived == nil {
		w.derived, w.stop = context.WithCancelCause(w.Context)
		if rt := w.roundTrip; rt == nil {
			w.stop(nil)
		} else {
			rt.t.cancellations.update(rt.req, cancellation{stop: w.stop})
			watchCancel(w.derived, cancelOf(rt.req), w.stop)
		}
	}
	return w.derived.Done()
}

// Err implements context.Context.
func (w *waitContext) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.derived != nil && w.derived.Err() != nil:
		return context.Cause(w.derived)
	case w.roundTrip == nil:
		return w.Context.Err()
	}
	return w.roundTrip.cancelCause()
}

// end says that the wait is over.
func (w *waitContext) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	rt := w.roundTrip
	w.roundTrip = nil
	if w.stop != nil {
		w.stop(nil)
		rt.t.cancellations.update(rt.req, cancellation{})
	}
}

// cancelCause returns why nobody waits for the response any more, nil if somebody does.
func (rt *roundTrip) cancelCause() error {
	if rt.ctx.Err() != nil {
		return context.Cause(rt.ctx)
	}
	if rt.t.cancellations.isCanceled(rt.req) || isClosed(cancelOf(rt.req)) {
		return errCanceled
	}
	return nil
}

// cancelOf returns Request.Cancel, which programs still set, and http.Client does for
// its Timeout.
func cancelOf(req *http.Request) <-chan struct{} {
	return req.Cancel //lint:ignore SA1019 see above
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// watchCancel calls stop when cancel is closed, unless ctx ends before.
func watchCancel(ctx context.Context, cancel <-chan struct{}, stop context.CancelCauseFunc) {
	if cancel == nil {
		return
	}
	go func() {
		select {
		case <-cancel:
			stop(errCanceled)
		case <-ctx.Done():
		}
	}()
}
