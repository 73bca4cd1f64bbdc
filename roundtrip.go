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
	"github.com/heed-go/heed/internal/explain"
	"github.com/heed-go/heed/internal/httpbody"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A roundTrip is the state of one call of Transport.RoundTrip. roundTrips are pooled: a
// request that is granted immediately and succeeds does not allocate.
//
//	                              ┌───────────────────────────────────────────┐
//	                              ▼                                           │
//	addDemands ─▶ waitForStart ─▶ nextAttempt ─▶ send ─▶ shouldRetry ─ yes ─▶ waitForRetry
//	  │ error       │ error         │ error                │ no                │ error
//	  ▼             ▼               ▼                      ▼                   ▼
//	fail          fail            fail                   finish              fail
//
// After each step, the claims of the ticket, the body of the request and the context of
// the attempt have these owners:
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
//	fail           ended                     closed       ended
//
// The owner ends a claim with Queue.Cancel if the attempt was not sent, and with
// Queue.Observe if it was. If a hook, a limiter or Base panics, end releases everything
// that fail would release, and closes the body of the response.
type roundTrip struct {
	*attemptResources
	hooks queue.Hooks // call recordPosition and addQuotaDemand; kept in the pool

	t       *Transport
	req     *http.Request
	opts    RequestOptions // the options in the context of req
	trace   *Trace         // of the Transport and of WithTrace; never nil
	noRetry bool           // the request is sent at most once

	retry       *RetryPolicy // the policy of the call, with defaults
	routePolicy RetryPolicy  // the policy of Transport.RetryFor

	waitCtx waitContext

	quotaSlot  int                   // index of the Tracker's demand in the ticket; -1 if there is none
	unitSlots  [queue.MaxDemands]int // indexes of the demands for RequestOptions.Costs
	unitCount  int                   // used length of unitSlots
	hasDemands bool                  // whether the ticket has demands

	body           body
	idempotencyKey string      // the generated Idempotency-Key; "" if there is none
	timer          *time.Timer // calls cancel after RetryPolicy.AttemptTimeout
	breakerDone    func(error) // reports to the Breaker; nil if no report is due
	attempts       int         // attempts sent
	failures       int         // attempts that failed and were not throttled
	resp           *http.Response
	err            error
	retryAfter     time.Duration           // Retry-After that the Tracker found in headers or body
	endedAt        time.Time               // time of resp or err; zero if it is a success
	tracedAt       time.Time               // when the latest attempt was sent; zero if no hook of the Trace needs it
	statedDelay    time.Duration           // Retry-After of the latest attempt that is retried
	sentAt         time.Time               // when the latest attempt was granted; zero if no limit granted it
	limitBuf       [2]throttle.RemoteLimit // buffer for the limits of a response
	drained        drained                 // what was read of resp to discard it
	stopReason     error                   // why the request is not retried; nil if no retry is needed
	stoppedByHook  bool                    // stopReason is the error of Limits, BeforeSend or ShouldRetry and is returned
	returned       bool                    // RoundTrip returns without a panic

	backoffPolicy   backoff.Policy // the policy of this call; nil before the first failure
	lastDelay       time.Duration  // latest result of backoffPolicy
	zeroRetryAfters int            // responses with a Retry-After of 0
	delay           time.Duration  // delay before the next attempt
	firstEnd        time.Time      // when the first attempt failed
	latencyBudget   time.Duration  // half of the time to the caller's deadline; 0 if there is none or it is not computed yet
	info            Info
	waitStart       WaitStartInfo // of the present attempt
	longestWait     WaitDoneInfo  // the longest wait of the call in the queue
	retryDelay      time.Duration // time between attempts
	startedAt       time.Time     // when the call began; zero if no hook of the Trace needs it
	pastAttempts    []Attempt     // attempts whose outcome was discarded for a retry
}

var roundTripPool = sync.Pool{New: func() any {
	rt := new(roundTrip)
	rt.hooks = queue.Hooks{Queued: rt.recordPosition, Renew: rt.addQuotaDemand}
	return rt
}}

// attemptResources holds what a call may need until the end of the response body: the
// context of the attempt, and the claims of limits that hold until the end. It is pooled.
// The call owns it until RoundTrip returns a response with such a body; then the body
// owns it.
type attemptResources struct {
	t                   *Transport
	ctx                 context.Context // context of the request
	detachedCtx         context.Context // ctx without cancellation; nil if it is not needed yet
	ticket              queue.Ticket
	hasConfiguredLimits bool                    // whether the ticket has limits other than the Tracker's
	granted             bool                    // whether the ticket has a grant that has not ended
	sentToBase          bool                    // whether Base got the attempt of the grant
	outcome             throttle.Outcome        // outcome of that attempt
	cancel              context.CancelCauseFunc // cancels the context of the attempt; nil if it is the request's own
}

var attemptResourcesPool = sync.Pool{New: func() any { return new(attemptResources) }}

// detached returns the context for the calls that end a claim. It is never canceled,
// since claims must also be ended after the caller canceled the request. The Tracker's
// limits ignore the context.
func (l *attemptResources) detached() context.Context {
	if !l.hasConfiguredLimits || l.ctx.Done() == nil {
		return l.ctx
	}
	if l.detachedCtx == nil {
		l.detachedCtx = context.WithoutCancel(l.ctx)
	}
	return l.detachedCtx
}

// holdsUntilEnd reports whether a limit of the ticket holds its claim until the end of
// the response body.
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

// nonBlocking reports whether all limits of the ticket decide in memory, so that they
// ignore the context.
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

// newRoundTrip returns a roundTrip for req from the pool.
func (t *Transport) newRoundTrip(req *http.Request) *roundTrip {
	rt := roundTripPool.Get().(*roundTrip)
	if rt.attemptResources == nil {
		rt.attemptResources = attemptResourcesPool.Get().(*attemptResources)
	}
	rt.t, rt.req, rt.attemptResources.t, rt.ctx = t, req, t, req.Context()
	v := settingsFrom(rt.ctx)
	rt.opts, rt.trace = v.options, t.resolved.trace
	if v.trace != nil {
		rt.trace = JoinTraces(t.Trace, v.trace)
	}
	if rt.trace.Done != nil {
		rt.startedAt = t.now()
	}
	t.cancellations.end(req) // a cancellation before the call has no effect
	return rt
}

// resolvePolicy sets the policy of the call, how its body is sent, and its longest waits.
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
	rt.ticket.Tenant = rt.opts.Tenant
	rt.ticket.Priority = int32(min(max(rt.opts.Priority, math.MinInt32), math.MaxInt32))
	rt.ticket.MaxServerWait = rt.maxServerWait()
}

// Errors for requests whose demands do not fit in a ticket.
const (
	errTooManyDemands = invalidRequestError("heed: Transport.Limits added too many demands: one demand of the ticket is reserved for the server's limits, and one for Transport.Limiter if it is set: combine some with throttle.AllOf")
	errTooManyUnits   = invalidRequestError("heed: RequestOptions.Costs has more units than the ticket has demands left beside those of Transport.Limits and Transport.Limiter")
)

// addDemands adds the demands of the request to the ticket. The Limits hook is called
// first, so that a hook that assigns demands instead of adding them does not overwrite
// those of the Transport. The error is that of the hook, errTooManyDemands or
// errTooManyUnits.
func (rt *roundTrip) addDemands() error {
	t := rt.t
	if t.Limits != nil {
		if err := rt.addLimits(); err != nil {
			rt.stoppedByHook = true
			return fmt.Errorf("heed: Transport.Limits: %w", err)
		}
	}
	if t.Limiter != nil {
		if rt.freeSlot() == queue.MaxDemands {
			return errTooManyDemands
		}
		d := throttle.Demand{Limiter: t.Limiter, Cost: rt.opts.Cost}
		if t.Key != nil {
			d.Key = t.Key(rt.req)
		}
		rt.ticket.Add(d)
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

// addLimits calls Transport.Limits. The ticket keeps demands free for the server's limits, for
// Transport.Limiter and for each unit of RequestOptions.Costs, but leaves one for Limits.
func (rt *roundTrip) addLimits() error {
	own := 1 + len(rt.opts.Costs)
	if rt.t.Limiter != nil {
		own++
	}
	rt.ticket.KeepFree(min(own, queue.MaxDemands-1))
	err := rt.t.Limits(rt.req, &rt.ticket)
	rt.ticket.KeepFree(0)
	return err
}

// addQuotaDemand updates the Tracker's demands in the ticket. They may change after each
// response, and there is no demand while no limit of the server is known. The error is
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
		rt.quotaSlot = -1 // the slot may be used for a unit of Costs
	} else {
		rt.hasDemands = true
	}
	return rt.addUnitDemands()
}

// addUnitDemands updates the Tracker's demands for the units of RequestOptions.Costs. The
// error is errTooManyUnits.
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

// freeSlot returns the index of the first slot of the ticket without a demand, or
// MaxDemands if there is none.
func (rt *roundTrip) freeSlot() (i int) {
	for i < queue.MaxDemands && rt.ticket.Demands[i].Limiter != nil {
		i++
	}
	return i
}

// quotaDemand returns the Tracker's demand for requests, or the zero Demand.
func (rt *roundTrip) quotaDemand() throttle.Demand {
	if rt.quotaSlot < 0 {
		return throttle.Demand{}
	}
	return rt.ticket.Demands[rt.quotaSlot]
}

// waitForStart waits until the start delay of the Transport has passed.
func (rt *roundTrip) waitForStart() error {
	t := rt.t
	t.startDelay.once.Do(func() {
		offset := backoff.RandomOffset()
		if t.StartSeed != "" {
			offset = backoff.OffsetFor(t.StartSeed)
		}
		t.startDelay.at = t.now().Add(offset.In(t.StartJitter))
	})
	now := t.now()
	wait := t.startDelay.at.Sub(now)
	if wait <= 0 {
		t.startDelay.passed.Store(true)
		return nil
	}
	if err := rt.checkWait(now, wait, rt.maxOwnWait()); err != nil {
		return fmt.Errorf("heed: Transport.StartJitter delays the first request by another %v: %w", wait, err)
	}
	ctx := rt.newWaitContext(false)
	err := httpbody.Sleep(ctx, t.Clock, wait)
	ctx.end()
	rt.info.BackoffWait += t.now().Sub(now)
	return err
}

// nextAttempt waits until the next attempt may be sent and returns it. The Breaker is
// asked last, because it counts the request as soon as it allows it.
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

// acquire waits in the queue until all limits grant the next attempt.
func (rt *roundTrip) acquire() error {
	rt.waitStart = WaitStartInfo{Attempt: rt.attempts + 1, Cost: max(rt.opts.Cost, 1)}
	if rt.attempts > 0 {
		if err := rt.addQuotaDemand(); err != nil {
			return err
		}
	}
	rt.expectLatency()
	rt.granted, rt.sentToBase = true, false // set before the wait, so that a grant is also ended if a hook of the Queue panics
	err := rt.wait()
	if rt.granted = err == nil; rt.granted && rt.attempts == 0 {
		rt.countForBudget()
	}
	if w := rt.ticket.Waited(); w > 0 {
		rt.addWait(w, err)
	}
	if rt.waitStart.At.IsZero() {
		rt.traceWaitStart()
	}
	if f := rt.trace.WaitDone; f != nil {
		f(rt.req, rt.waitDoneInfo(err))
	}
	return err
}

// addWait adds the time of a wait in the queue that has ended with err.
func (rt *roundTrip) addWait(waited time.Duration, err error) {
	rt.info.addWait(waited, rt.ticket.WaitedFor())
	if rt.attempts > 0 {
		rt.retryDelay += waited
	}
	if waited > rt.longestWait.Waited {
		rt.longestWait = rt.waitDoneInfo(err)
	}
}

// recordPosition records and traces that the request begins to wait in the queue.
func (rt *roundTrip) recordPosition(p queue.Position) {
	i := &rt.waitStart
	i.At, i.Limit, i.ServerImposed, i.Estimated, i.Ahead, i.ExpectedEnd = p.At, p.Limit, p.ServerImposed, p.Estimated, p.Ahead, p.ExpectedEnd
	_, i.Reason = explain.SplitLimit(p.Limit)
	rt.traceWaitStart()
}

// traceWaitStart calls Trace.WaitStart.
func (rt *roundTrip) traceWaitStart() {
	if f := rt.trace.WaitStart; f != nil {
		f(rt.req, rt.waitStart)
	}
}

// waitDoneInfo describes the wait that has just ended with err.
func (rt *roundTrip) waitDoneInfo(err error) WaitDoneInfo {
	i := WaitDoneInfo{Attempt: rt.attempts + 1, Cost: max(rt.opts.Cost, 1), Waited: rt.ticket.Waited(), Start: rt.waitStart, Limit: rt.ticket.WaitedFor(), Err: err}
	i.ServerImposed, i.Estimated = rt.ticket.WaitedForServer()
	if err != nil {
		i.addRefusal(err)
	}
	_, i.Reason = explain.SplitLimit(i.Limit)
	return i
}

// addRefusal sets the limit that rejected the request with err, if one did.
func (i *WaitDoneInfo) addRefusal(err error) {
	var refused *throttle.RefusedError
	if errors.As(err, &refused) && refused.Decision.Policy != "" {
		d := &refused.Decision
		i.Limit, i.ServerImposed, i.Estimated = d.Policy, d.ServerImposed, d.Estimated
	}
}

// wait calls Queue.Wait, or Queue.Try for a request with RequestOptions.NoWait. It applies
// the deadline rules, see checkWait.
func (rt *roundTrip) wait() error {
	if !rt.hasDemands {
		return rt.cancelCause()
	}
	w := rt.t.resolved.queue
	if rt.opts.NoWait {
		ctx := rt.newWaitContext(!rt.nonBlocking())
		defer ctx.end()
		return rt.addReason(w.Try(ctx, &rt.ticket), throttle.Forever, nil)
	}
	limit, reason := rt.queueWaitLimit()
	if limit == throttle.Forever {
		ctx := rt.newWaitContext(!rt.nonBlocking())
		defer ctx.end()
		return rt.addReason(w.WaitHooks(ctx, &rt.ticket, rt.hooks), limit, nil)
	}
	parent := rt.newWaitContext(true)
	defer parent.end()
	ctx, cancel := context.WithTimeoutCause(parent, limit, reason)
	defer cancel()
	return rt.addReason(w.WaitHooks(ctx, &rt.ticket, rt.hooks), limit, reason)
}

// Deadline rules. A wait that breaks one of them is not begun: the request fails
// immediately with the error of the first rule, in this order:
//
//	rule                          waits                                      error
//	the context has ended         all                                        its cause
//	RequestOptions.NoWait         all                                        ErrMaxWait
//	the deadline of the context   all                                        context.DeadlineExceeded
//	RetryPolicy.MaxElapsed        all after the first attempt                ErrMaxElapsed
//	RequestOptions.MaxWait        all                                        ErrMaxWait
//	RetryPolicy.MaxWait           delays before a retry, and waits in the    ErrMaxWait
//	                              queue for limits of the server
//
// checkWait applies all but the first to waits outside the queue: the start delay and the
// delay before a retry. The first applies when a wait begins. In the queue, the context and Ticket.MaxServerWait stand for them, and addReason
// names the rule. An attempt in flight is never canceled by a rule other than the context.

// checkWait returns the error of the first rule that forbids a wait of d from now on, or
// nil. maxWait is the longest wait by the last two rules.
func (rt *roundTrip) checkWait(now time.Time, d, maxWait time.Duration) error {
	deadline, hasDeadline := rt.ctx.Deadline()
	switch {
	case rt.opts.NoWait && d > 0:
		return rt.errMaxWait()
	case hasDeadline && time.Until(deadline) <= d:
		return context.DeadlineExceeded
	case d > rt.elapsedLeft(now):
		return rt.errMaxElapsed()
	case d > maxWait:
		return rt.errMaxWait()
	}
	return nil
}

// queueWaitLimit returns the longest wait in the queue for the next attempt by the rules
// for all waits, and the error for a longer one.
func (rt *roundTrip) queueWaitLimit() (limit time.Duration, reason error) {
	limit = throttle.Forever
	if !rt.firstEnd.IsZero() && rt.retry.MaxElapsed < throttle.Forever {
		limit, reason = max(rt.elapsedLeft(rt.t.now()), 1), rt.errMaxElapsed()
	}
	if m := rt.maxOwnWait(); m < limit {
		limit, reason = m, rt.errMaxWait()
	}
	return limit, reason
}

// addReason adds the rule that forbade the wait to err, the result of the queue. limit and
// its reason are those of queueWaitLimit.
func (rt *roundTrip) addReason(err error, limit time.Duration, reason error) error {
	if err == nil {
		return nil // returns before r is allocated
	}
	var r *throttle.RefusedError
	if rt.cancelCause() != nil || !errors.As(err, &r) {
		return err
	}
	d := &r.Decision
	switch deadline, hasDeadline := rt.ctx.Deadline(); {
	case rt.opts.NoWait && r.Reason == nil:
		reason = rt.errMaxWait()
	case reason != nil && errors.Is(r.Reason, context.DeadlineExceeded):
		if hasDeadline && time.Until(deadline) <= max(limit, d.Wait) {
			return err
		}
		if d.Wait > rt.elapsedLeft(rt.t.now()) {
			reason = rt.errMaxElapsed() // the queue was given the smaller limit of the two rules
		}
	case r.Reason == nil && d.ServerImposed && (d.Wait > rt.ticket.MaxServerWait || d.Estimated && rt.ticket.Waited() >= rt.ticket.MaxServerWait):
		reason = rt.errMaxWait()
	default:
		return err
	}
	return &throttle.RefusedError{Key: r.Key, Decision: r.Decision, Reason: reason}
}

// expectLatency sets the expected latency of the request in the ticket. The queue then
// rejects a wait after which the response could not arrive before the deadline. The
// latency counts up to half of the time that the caller gave.
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

// elapsedLeft returns what is left of RetryPolicy.MaxElapsed, or throttle.Forever before
// the end of the first attempt.
func (rt *roundTrip) elapsedLeft(now time.Time) time.Duration {
	if rt.firstEnd.IsZero() || rt.retry.MaxElapsed == throttle.Forever {
		return throttle.Forever
	}
	return rt.retry.MaxElapsed - now.Sub(rt.firstEnd)
}

// maxOwnWait returns the longest wait that the program may impose: for its limits, and for
// the start delay.
func (rt *roundTrip) maxOwnWait() time.Duration {
	if rt.opts.MaxWait > 0 {
		return rt.opts.MaxWait
	}
	return throttle.Forever
}

// maxWait returns the longest delay before a retry, and the longest wait that a server may
// state.
func (rt *roundTrip) maxWait() time.Duration {
	switch {
	case rt.opts.NoWait:
		return 0
	case rt.opts.MaxWait > 0:
		return rt.opts.MaxWait
	}
	return rt.retry.MaxWait
}

// maxServerWait returns the longest wait in the queue that a server may impose. The
// Tracker adds a small random time to stated waits. The result includes it, so that it
// alone does not make a wait too long.
func (rt *roundTrip) maxServerWait() time.Duration {
	maxWait := rt.maxWait()
	return min(maxWait, throttle.Forever-time.Second) + min(maxWait/40, time.Second)
}

// errMaxWait returns ErrMaxWait with the setting that determines maxWait.
func (rt *roundTrip) errMaxWait() error {
	switch {
	case rt.opts.NoWait:
		return withSetting(ErrMaxWait, "RequestOptions.NoWait", true)
	case rt.opts.MaxWait > 0:
		return withSetting(ErrMaxWait, "RequestOptions.MaxWait", rt.opts.MaxWait)
	}
	return withSetting(ErrMaxWait, "RetryPolicy.MaxWait", rt.retry.MaxWait)
}

// errMaxElapsed returns ErrMaxElapsed with its setting.
func (rt *roundTrip) errMaxElapsed() error {
	return withSetting(ErrMaxElapsed, "RetryPolicy.MaxElapsed", rt.retry.MaxElapsed)
}

// budgetBatch is the number of calls without limits that are counted together.
const budgetBatch = 16

// countForBudget deposits the call in the retry budget, at the time of its grant.
func (rt *roundTrip) countForBudget() {
	if rt.noRetry {
		return
	}
	p := rt.retry
	if at := rt.ticket.GrantedAt(); !at.IsZero() {
		p.Budget.Deposit(at)
		return
	}
	// Without limits the clock has not been read. The budget counts many calls, so one
	// reading per batch is enough.
	if n := rt.t.unlimitedCalls.Add(1); n%budgetBatch == 0 {
		p.Budget.DepositN(rt.t.now(), budgetBatch)
	}
}

// attemptRequest returns the request of the next attempt. It is the caller's request if
// this is the first attempt and nothing must differ; otherwise it is a copy.
func (rt *roundTrip) attemptRequest() (*http.Request, error) {
	p := rt.retry
	body, isNew := rt.body.next(rt.req)
	if rt.attempts == 0 && !isNew && p.AttemptTimeout <= 0 && p.BeforeSend == nil && rt.idempotencyKey == "" && !rt.watchesCancel() {
		return rt.req, nil
	}
	ctx := rt.withAttemptTimeout(p.AttemptTimeout)
	if rt.attempts > 0 {
		ctx = context.WithValue(ctx, attemptKey{}, rt.attempts)
	}
	req := rt.req.WithContext(ctx)
	req.Body = body
	if rt.body.source == fromRewind {
		req.GetBody = rt.body.rewinder.getBody
	}
	setNumber := p.AttemptHeader != "" && rt.attempts > 0
	if setNumber || p.BeforeSend != nil || rt.idempotencyKey != "" {
		req.Header = req.Header.Clone()
	}
	if rt.idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", rt.idempotencyKey)
	}
	if setNumber {
		req.Header.Set(p.AttemptHeader, strconv.Itoa(rt.attempts+1))
	}
	if p.BeforeSend != nil {
		return req, rt.beforeSend(req)
	}
	return req, nil
}

// beforeSend calls RetryPolicy.BeforeSend for req, a copy of the caller's request. Its URL
// is copied too, so that the hook may add a signature to the query.
func (rt *roundTrip) beforeSend(req *http.Request) error {
	u := *req.URL
	req.URL = &u
	err := rt.retry.BeforeSend(req, rt.attempts+1)
	if err != nil {
		rt.stoppedByHook = true
		err = fmt.Errorf("heed: RetryPolicy.BeforeSend: %w", err)
	}
	return err
}

// withAttemptTimeout returns the context of one attempt. It is canceled if there is no
// response within d, unless d is 0, and at the end of the response body.
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

// watchesCancel reports whether Request.Cancel must cancel the context of the attempt. Of
// all Bases, only http.Transport is known to check Request.Cancel itself.
func (rt *roundTrip) watchesCancel() bool {
	if cancelOf(rt.req) == nil {
		return false
	}
	return !isTransport(rt.t.resolved.base)
}

// send sends one attempt and reports the outcome to the limits.
func (rt *roundTrip) send(req *http.Request) (*http.Response, error) {
	rt.attempts++
	rt.tracedAt = time.Time{}
	if rt.trace.AttemptStart != nil || rt.trace.AttemptDone != nil {
		rt.tracedAt = rt.t.now()
	}
	if f := rt.trace.AttemptStart; f != nil {
		f(req, AttemptStartInfo{Attempt: rt.attempts, Sent: rt.tracedAt})
	}
	rt.sentAt = rt.ticket.GrantedAt()
	resp, err := rt.sendToBase(req)
	var now time.Time // stays zero for a success, which needs no time
	if err != nil || resp.StatusCode >= 400 {
		now = rt.t.now()
	}
	f := rt.t.resolved.quota.Feedback(rt.req, rt.quotaDemand(), resp, err, now, rt.limitBuf[:0])
	f.Partial = hasOpenBody(resp) && rt.holdsUntilEnd()
	rt.t.resolved.queue.Observe(rt.detached(), &rt.ticket, f)
	rt.granted, rt.outcome, rt.retryAfter = f.Partial, f.Outcome, f.RetryAfter
	rt.endedAt = f.Now
	rt.observeLatency()
	if f := rt.trace.AttemptDone; f != nil {
		f(req, rt.attemptDoneInfo(resp, err))
	}
	return resp, err
}

// attemptDoneInfo describes the attempt that has just ended.
func (rt *roundTrip) attemptDoneInfo(resp *http.Response, err error) AttemptDoneInfo {
	now := rt.endedAt
	if now.IsZero() {
		now = rt.t.now()
	}
	return AttemptDoneInfo{
		Attempt: rt.attempts, Sent: rt.tracedAt, Duration: max(now.Sub(rt.tracedAt), 0),
		Status: statusOf(resp), Response: resp, Err: err, Outcome: rt.outcome, RetryAfter: rt.retryAfter,
	}
}

// sendToBase calls Base.RoundTrip and enforces the contract of http.RoundTripper on its
// result.
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

// stopAttemptTimer stops the timer of the attempt. It returns err, or errAttemptTimeout
// if the timer has fired. A response that arrives when the timer fires is closed: its
// context is canceled, so its body cannot be read.
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
		rt.cancel = nil // the caller owns the connection, which ends with the request's context
	}
	return err
}

// breakerResult returns the result of an attempt for the Breaker. All responses below 500
// count as success, including 429.
func breakerResult(resp *http.Response, err error) error {
	if err == nil && resp.StatusCode >= 500 {
		return statusError(resp.StatusCode)
	}
	return err
}

// reportToBreaker reports err to the Breaker that allowed the attempt, if there is one.
func (rt *roundTrip) reportToBreaker(err error) {
	if done := rt.breakerDone; done != nil {
		rt.breakerDone = nil // cleared before the call, which may panic
		done(err)
	}
}

// observeLatency reports to the Tracker how long the server took to accept the attempt.
// Only attempts that had to pass a limit are measured.
func (rt *roundTrip) observeLatency() {
	if !rt.hasDemands || rt.outcome != throttle.Accepted || rt.sentAt.IsZero() {
		return
	}
	if rt.ticket.Waited() == 0 && rt.sentAt.UnixNano()>>10&15 != 0 {
		return // about one of 16 is measured if requests do not wait
	}
	now := rt.endedAt
	if now.IsZero() {
		now = rt.t.now()
	}
	rt.t.resolved.quota.ObserveLatency(rt.req, now.Sub(rt.sentAt), now)
}

// waitForRetry discards the response and sleeps for the delay.
func (rt *roundTrip) waitForRetry() error {
	if f := rt.trace.Retry; f != nil {
		f(rt.req, RetryInfo{Attempt: rt.attempts, Delay: rt.delay, RetryAfter: rt.statedDelay, Status: statusOf(rt.resp), Response: rt.resp, Err: rt.err})
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
	waited := rt.t.now().Sub(start)
	rt.info.BackoffWait += waited
	rt.retryDelay += waited
	return err
}

// attemptResult returns the result of the latest attempt.
func (rt *roundTrip) attemptResult() Attempt {
	if rt.resp == nil {
		return Attempt{Err: rt.err}
	}
	return Attempt{Status: rt.resp.StatusCode, Body: rt.drained.snippet()}
}

// finish returns the result of the last attempt.
func (rt *roundTrip) finish() (*http.Response, error) {
	rt.body.finish(rt.req)
	if rt.stopReason != nil {
		rt.traceGiveUp()
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

// respond returns the response with its Info. If the claims or the context last until the
// end of the body, it wraps the body.
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

// fail ends a call because of err, before the first attempt or between two attempts. It
// returns the last response if its whole body was read, the caller has not canceled the
// request and err is not that of a hook; otherwise it returns an error.
func (rt *roundTrip) fail(err error) (*http.Response, error) {
	rt.endAttempt()
	rt.body.finish(rt.req)
	rt.stopReason = err
	rt.traceGiveUp()
	switch {
	case rt.attempts == 0 && (rt.cancelCause() != nil || rt.stoppedByHook || !isWaitError(err)):
		return nil, err
	case rt.cancelCause() == nil && !rt.stoppedByHook && rt.resp != nil && rt.drained.complete:
		rt.resp.Body = rt.drained.reader()
		return rt.respond(), nil
	}
	return nil, rt.giveUp()
}

// traceGiveUp calls Trace.GiveUp.
func (rt *roundTrip) traceGiveUp() {
	if f := rt.trace.GiveUp; f != nil {
		f(rt.req, GiveUpInfo{
			Attempts: rt.attempts, QueueWait: rt.info.QueueWait, BackoffWait: rt.info.BackoffWait,
			Status: statusOf(rt.resp), Response: rt.resp, Err: rt.err, Reason: rt.stopReason,
		})
	}
}

// traceDone calls Trace.Done.
func (rt *roundTrip) traceDone(resp *http.Response, err error) {
	if f := rt.trace.Done; f != nil {
		f(rt.req, DoneInfo{
			Attempts: rt.attempts, Duration: max(rt.t.now().Sub(rt.startedAt), 0), QueueWait: rt.info.QueueWait, BackoffWait: rt.info.BackoffWait,
			RetryDelay: rt.retryDelay, Status: statusOf(resp), Response: resp, Err: err, StopReason: rt.stopReason,
		})
	}
}

// giveUp returns the GiveUpError of the call.
func (rt *roundTrip) giveUp() error {
	e := &GiveUpError{
		Method:      rt.req.Method,
		URL:         httpbody.RedactURL(rt.req.URL),
		Attempts:    rt.pastAttempts,
		QueueWait:   rt.info.QueueWait,
		BackoffWait: rt.info.BackoffWait,
		LongestWait: rt.longestWait,
		Reason:      rt.stopReason,
		Err:         rt.err,
	}
	if e.Method == "" {
		e.Method = http.MethodGet
	}
	return e
}

// endAttempt releases what an attempt without a returned response holds: its timer, its
// claim, its context, and its permission of the Breaker. Units of an attempt that was not
// sent are returned to the limits.
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

// end releases what the call holds, also after a panic in a hook, a limiter or Base, and
// returns it to the pool.
func (rt *roundTrip) end() {
	rt.t.cancellations.end(rt.req)
	if !rt.returned {
		rt.body.finish(rt.req)
		if rt.resp != nil {
			closeBody(rt.resp.Body)
		}
	}
	l := rt.attemptResources
	if l != nil { // not owned by the body of a response
		rt.endAttempt()
		*l = attemptResources{}
	}
	*rt = roundTrip{attemptResources: l, hooks: rt.hooks}
	roundTripPool.Put(rt)
}

// A waitContext is the context of one wait of a call. It is canceled with the context of
// the request, and by Request.Cancel and CancelRequest. Most waits end before they block,
// so the derived context is only created by the first call of Done.
type waitContext struct {
	context.Context // context of the request

	mu        sync.Mutex
	roundTrip *roundTrip // nil after the wait
	derived   context.Context
	stop      context.CancelCauseFunc
}

// newWaitContext returns the context of a wait. Its end method must be called after the
// wait. If shared is false, no other code keeps the context after the wait, and the
// waitContext of rt is reused.
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

// end marks the wait as over and cancels the derived context.
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

// cancelCause returns the error of a canceled request, or nil if it is not canceled.
func (rt *roundTrip) cancelCause() error {
	if rt.ctx.Err() != nil {
		return context.Cause(rt.ctx)
	}
	if rt.t.cancellations.isCanceled(rt.req) || isClosed(cancelOf(rt.req)) {
		return errCanceled
	}
	return nil
}

// cancelOf returns Request.Cancel. It is deprecated, but programs still set it, and
// http.Client may set it for its Timeout.
func cancelOf(req *http.Request) <-chan struct{} {
	return req.Cancel //nolint:staticcheck // see above
}

// isClosed reports whether c is closed.
func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// watchCancel calls stop when cancel is closed, unless ctx ends first.
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
