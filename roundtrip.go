package heed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/httpbody"
	"github.com/heed-go/heed/internal/httphost"
	"github.com/heed-go/heed/internal/queuelink"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"golang.org/x/net/http/httpguts"
)

// A roundTrip is the state of one call of Transport.RoundTrip. Its steps are those of run. end closes and releases what
// it still holds, also if a hook, a limiter or Base panics. roundTrips are pooled: a request that is granted
// immediately and succeeds does not allocate.
type roundTrip struct {
	attempt *attempt    // the attempt that is prepared, sent or judged; never nil
	hooks   queue.Hooks // call queued and addQuotaDemands; kept in the pool

	t         *Transport
	req       *http.Request
	ctx       context.Context // of req
	opts      RequestOptions  // the options in ctx
	trace     *Trace          // of the Transport and of WithTrace; never nil
	startedAt time.Time       // when the call began; zero if no hook of the Trace needs it

	noRetry        bool          // the request is sent at most once
	retry          *RetryPolicy  // the policy of the call, with defaults
	routePolicy    RetryPolicy   // the policy of Transport.RetryFor
	maxWait        time.Duration // the longest delay before a retry, and the longest wait that a server may state
	idempotencyKey string        // the generated Idempotency-Key; "" if there is none
	body           body          // the body of the request, until Base gets it

	hasDemands bool // whether the ticket has demands, or had some for an earlier attempt
	quotaIndex int  // index of the Tracker's demand, which may have no Limiter; those for RequestOptions.Costs follow it

	retrying // what is kept from one attempt to the next

	info          Info     // what has happened so far
	longestWait   WaitInfo // the longest wait of the call in the queue
	stoppedByHook bool     // info.StopReason is the error of Limits, BeforeSend or ShouldRetry and is returned
}

// An attempt is what one attempt holds until it ends, and its result. It is a value of its own, and has the ticket of the
// call, because it may outlive the call: the body of a response that needs claims or the context until its end owns the
// attempt after the return of RoundTrip. end ends what it holds, whatever owns it. attempts are pooled.
type attempt struct {
	t           *Transport
	ctx         context.Context   // of the call
	ticket      queue.Ticket      // kept for the next attempt, which keeps the place in the queue
	demandSpace []throttle.Demand // memory for the demands of the ticket

	// How it was granted; set by acquire.
	wait        WaitInfo      // the beginning of the wait
	granted     bool          // whether the ticket has a grant that has not ended
	grantedAt   time.Time     // zero if no limit granted it
	highLatency time.Duration // the longest of the latest latencies of the route; 0: not known
	measured    bool          // the Tracker gets the time that the server takes to accept it

	breakerDone func(error)             // reports to the Breaker; nil if no report is due
	cancel      context.CancelCauseFunc // cancels the context of the attempt; nil if it is the request's own
	timer       *time.Timer             // calls cancel after RetryPolicy.AttemptTimeout; nil if cancel is nil

	// The result; set by send.
	sent       *http.Request // nil if Base did not get it
	tracedAt   time.Time     // when it was sent; zero if no hook of the Trace needs it
	resp       *http.Response
	err        error
	outcome    throttle.Outcome
	report     headers.Report          // what resp states about limits, if it is a failure
	retryAfter time.Duration           // wait that resp states if it is a rejection
	endedAt    time.Time               // time of resp or err; zero for a success until resultAt is called
	limitBuf   [2]throttle.RemoteLimit // buffer for the limits of resp
}

// retrying is what a call keeps from one attempt to the next.
type retrying struct {
	backoffPolicy   backoff.Policy // the policy of this call; nil before the first failure
	until           time.Time      // the latest start of a retry; zero before the first failure and without a MaxElapsed
	failures        int            // attempts that failed and were not throttled
	zeroRetryAfters int            // responses with a Retry-After of 0
	delay           time.Duration  // delay before the next attempt
	lastDelay       time.Duration  // latest result of backoffPolicy
	backoff         time.Duration  // total of the delays of backoffPolicy
	betweenAttempts time.Duration  // time without an attempt in flight since the first one
	pastAttempts    []Attempt      // attempts whose outcome was discarded for a retry
	discarded       drained        // the response of the latest of them
}

var attemptPool = sync.Pool{New: func() any { return new(attempt) }}

var roundTripPool = sync.Pool{New: func() any {
	rt := &roundTrip{attempt: new(attempt)}
	rt.hooks = queue.Hooks{Queued: rt.queued, Renew: func() error { rt.addQuotaDemands(); return nil }}
	return rt
}}

// begin reads the options of the call and sets its policy, how its body is sent, and its longest waits.
func (rt *roundTrip) begin() {
	t, req, a := rt.t, rt.req, rt.attempt
	rt.ctx, rt.trace = req.Context(), t.resolved.trace
	a.t, a.ctx, a.ticket.Demands = t, rt.ctx, a.demandSpace
	if v, ok := rt.ctx.Value(settingsKey{}).(*settings); ok {
		if rt.opts = v.options; v.trace != nil {
			rt.trace = JoinTraces(t.Trace, v.trace)
		}
		rt.opts.MaxWait = max(rt.opts.MaxWait, 0)
	}
	if rt.trace.Done != nil {
		rt.startedAt = t.resolved.clock.Now()
	}
	rt.retry = &t.resolved.retry
	if t.RetryFor != nil {
		if r := t.RetryFor(req); r != nil {
			rt.routePolicy = r.withDefaults(t.resolved.retry.Budget)
			rt.retry = &rt.routePolicy
		}
	}
	p := rt.retry
	rt.noRetry = rt.opts.NoRetry || p.MaxAttempts <= 1 || callerRetries(req.Header)
	if !rt.noRetry {
		rt.body = bodyOf(req, p.MaxBodyBuffer)
	}
	if p.IdempotencyKey != nil && !isIdempotent(req, rt.opts, p.Idempotent) {
		rt.idempotencyKey = p.IdempotencyKey()
	}
	rt.maxWait = cmp.Or(rt.opts.MaxWait, p.MaxServerWait)
	if rt.opts.NoWait {
		rt.maxWait = 0
	}
	a.ticket.Tenant, a.ticket.Weight = rt.opts.Tenant, int32(min(max(rt.opts.Weight, 0), math.MaxInt32))
	a.ticket.Priority = int32(min(max(rt.opts.Priority, math.MinInt32), math.MaxInt32))
	// The Tracker adds a small random time to stated waits, which alone does not make a wait too long.
	a.ticket.MaxServerWait = min(rt.maxWait, throttle.Forever-time.Second) + min(rt.maxWait/40, time.Second)
}

// addDemands adds the demands of Transport.Limits and Transport.Limiter to the ticket; those of the
// Tracker follow them. The Limits hook is called first, so that a hook that assigns demands instead
// of adding them does not overwrite those of the Transport. The error is that of the hook.
func (rt *roundTrip) addDemands() error {
	t, a := rt.t, rt.attempt
	if t.Limits != nil {
		if err := t.Limits(rt.req, &a.ticket); err != nil {
			rt.stoppedByHook = true
			return fmt.Errorf("heed: Transport.Limits: %w", err)
		}
		// The hook may have assigned a slice of its own, which is not ours to change.
		a.demandSpace = append(a.demandSpace[:0], a.ticket.Demands...)
		a.ticket.Demands = a.demandSpace
	}
	if t.Limiter != nil {
		d := throttle.Demand{Limiter: t.Limiter, Cost: rt.opts.Cost}
		if t.Key != nil {
			d.Key = t.Key(rt.req)
		}
		a.ticket.Add(d)
	}
	rt.quotaIndex = len(a.ticket.Demands)
	return nil
}

// addQuotaDemands updates the Tracker's demands in the ticket. They may change after each
// response and while the request waits; there is none while no limit of the server is known.
func (rt *roundTrip) addQuotaDemands() {
	q := rt.t.resolved.quota
	d := q.Demand(rt.req)
	all := append(rt.attempt.ticket.Demands[:rt.quotaIndex], d)
	if len(rt.opts.Costs) > 0 { // Sorted allocates
		for _, unit := range slices.Sorted(maps.Keys(rt.opts.Costs)) {
			if u := q.DemandUnits(rt.req, unit, rt.opts.Costs[unit]); u.Limiter != nil {
				all = append(all, u)
			}
		}
	}
	rt.hasDemands = rt.hasDemands || len(all) > 1 || d.Limiter != nil
	rt.attempt.ticket.Demands, rt.attempt.demandSpace = all, all
}

// budgetBatch is the number of calls without limits that the Budget of Transport.Retry
// counts together, with one reading of the clock. The Budgets of Transport.RetryFor count
// each call, because the calls of a batch may have different ones.
const budgetBatch = 16

// acquire waits in the queue until all limits grant the next attempt.
func (rt *roundTrip) acquire() error {
	rt.addQuotaDemands()
	a := rt.attempt
	a.wait = WaitInfo{Attempt: rt.info.Attempts + 1, Cost: max(rt.opts.Cost, 1)}
	a.granted = true // set before the wait, so that a grant is also ended if a hook of the Queue panics
	err := rt.wait()
	a.granted, a.grantedAt = err == nil, queuelink.GrantedAt(&a.ticket)
	waited := a.ticket.Waited()
	if waited > 0 {
		rt.addWait(waited, err)
	}
	deadline, hasDeadline := rt.ctx.Deadline()
	a.measured = !a.grantedAt.IsZero() && (waited > 0 || hasDeadline && a.isSample(deadline))
	if f := rt.trace.WaitStart; f != nil && a.wait.At.IsZero() {
		f(rt.req, a.wait)
	}
	if f := rt.trace.WaitDone; f != nil {
		f(rt.req, rt.waitDoneInfo(err))
	}
	return err
}

func (rt *roundTrip) countForBudget() {
	t, budget := rt.t, rt.retry.Budget
	switch {
	case !rt.attempt.grantedAt.IsZero():
		budget.Deposit(rt.attempt.grantedAt, 1)
	case budget != t.resolved.retry.Budget:
		budget.Deposit(t.resolved.clock.Now(), 1)
	case t.unlimitedCalls.Add(1)%budgetBatch == 0:
		budget.Deposit(t.resolved.clock.Now(), budgetBatch)
	}
}

// reportGaveUp reports to the limit of the server that the call stops waiting.
func (rt *roundTrip) reportGaveUp() {
	if d := rt.attempt.ticket.Demands[rt.quotaIndex]; d.Limiter != nil {
		d.Limiter.Report(rt.ctx, throttle.Claim{}, throttle.Decision{}, throttle.Feedback{Outcome: throttle.Failed, Cause: throttle.CauseCanceled})
	}
}

// isSample reports whether the latency of an attempt that has not waited is measured, which only
// calls with a deadline use. It is measured of each of their attempts while it is not known, or
// long compared with the time that they have, and otherwise of about one of 16.
func (a *attempt) isSample(deadline time.Time) bool {
	return a.highLatency == 0 || a.highLatency > deadline.Sub(a.grantedAt)/8 || a.grantedAt.UnixNano()>>10&15 == 0
}

// prepare returns the request of the next attempt: the caller's if nothing must differ, or a copy.
func (rt *roundTrip) prepare() (*http.Request, error) {
	if err := rt.askBreaker(); err != nil {
		return nil, err
	}
	p, req := rt.retry, rt.req
	if rt.info.Attempts > 0 || rt.body.pending != nil || p.AttemptTimeout != 0 || p.BeforeSend != nil || rt.idempotencyKey != "" {
		ctx := rt.ctx
		if p.AttemptTimeout != 0 {
			ctx = rt.newAttemptContext()
		}
		if rt.info.Attempts != 0 {
			ctx = context.WithValue(ctx, attemptKey{}, rt.info.Attempts)
		}
		req = req.WithContext(ctx)
		if rt.body.pending != nil {
			req.Body = rt.body.pending
		}
		if rt.info.Attempts > 0 && p.AttemptHeader != "" || p.BeforeSend != nil || rt.idempotencyKey != "" {
			rt.setHeaders(req)
		}
	}
	if p.BeforeSend != nil && !leavesHost(req) {
		if err := rt.beforeSend(req); err != nil {
			return nil, err
		}
	}
	if rt.body.rewinder != nil { // set after BeforeSend, because getBody waits until Base has closed the body
		req.GetBody = rt.body.rewinder.getBody
	}
	return req, nil
}

// askBreaker asks the Breaker whether the next attempt may be sent, unless it has allowed that. It is called
// before the request waits in the queue, or if it need not wait, before BeforeSend: a call that the limits reject
// immediately must not count as one that the Breaker has allowed.
func (rt *roundTrip) askBreaker() error {
	if rt.t.Breaker == nil || rt.attempt.breakerDone != nil {
		return nil
	}
	b := rt.t.Breaker(rt.req)
	if b == nil {
		return nil
	}
	done, err := b.Allow()
	if err == nil {
		rt.attempt.breakerDone = done
	}
	return err
}

// newAttemptContext returns a context for one attempt. It is canceled if there is no
// response within AttemptTimeout, and at the end of the response body.
func (rt *roundTrip) newAttemptContext() context.Context {
	ctx, cancel := context.WithCancelCause(rt.ctx)
	rt.attempt.cancel = cancel
	rt.attempt.timer = time.AfterFunc(rt.retry.AttemptTimeout, func() { cancel(errAttemptTimeout) })
	return ctx
}

// setHeaders gives req, a copy of the caller's request, its own header with the fields of the attempt.
func (rt *roundTrip) setHeaders(req *http.Request) {
	req.Header = req.Header.Clone()
	if rt.idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", rt.idempotencyKey)
	}
	if name := rt.retry.AttemptHeader; name != "" && rt.info.Attempts > 0 {
		req.Header.Set(name, strconv.Itoa(rt.info.Attempts+1))
	}
}

// beforeSend calls RetryPolicy.BeforeSend for req, a copy of the caller's request. Its URL is copied too, so that the
// hook may add a signature to the query. Units that were returned meanwhile are claimed again.
func (rt *roundTrip) beforeSend(req *http.Request) error {
	u := *req.URL
	req.URL = &u
	if err := rt.callBeforeSend(req); err != nil {
		rt.stoppedByHook = true
		return fmt.Errorf("heed: RetryPolicy.BeforeSend: %w", err)
	}
	if rt.attempt.granted {
		return nil
	}
	if rt.attempt.cancel != nil && rt.attempt.timer.Stop() { // the wait does not count for AttemptTimeout
		defer rt.attempt.timer.Reset(rt.retry.AttemptTimeout)
	}
	return rt.acquire()
}

// maxBeforeSend is the longest time for which a call of BeforeSend holds units of a limit that holds them until the
// end. A hook that fetches a token may need such a unit itself, or wait for another hook that does.
const maxBeforeSend = time.Second // on the system clock, like all network timeouts

// callBeforeSend calls RetryPolicy.BeforeSend. If that takes longer than maxBeforeSend while a limit
// holds units until the end, all units are returned, and rt.attempt.granted is false afterwards.
func (rt *roundTrip) callBeforeSend(req *http.Request) error {
	if rt.attempt.granted && rt.holdsUntilEnd() {
		returned := make(chan struct{})
		timer := time.AfterFunc(maxBeforeSend, func() {
			defer close(returned)
			rt.t.resolved.queue.Report(rt.ctx, &rt.attempt.ticket, throttle.Feedback{State: throttle.Unused})
		})
		defer func() { // also if the hook panics
			if !timer.Stop() {
				<-returned
				rt.attempt.granted = false
			}
		}()
	}
	return rt.retry.BeforeSend(req, rt.info.Attempts+1)
}

// leavesHost reports whether req follows a redirect of http.Client to a host that is neither the
// host of the first request nor a subdomain of it, or follows one that did. http.Client removes
// credentials from the same requests. The ports do not matter.
func leavesHost(req *http.Request) bool {
	first := req
	for first.Response != nil {
		if first = first.Response.Request; first == nil || first.URL == nil {
			return true
		}
	}
	for domain := hostname(first.URL); req != first; req = req.Response.Request {
		if host := hostname(req.URL); host != domain && !strings.HasSuffix(host, "."+domain) {
			return true
		}
	}
	return false
}

// hostname returns the name or address of the host of u, in lower case and in its ASCII form.
func hostname(u *url.URL) string {
	name := httphost.Name(u.Host)
	if ascii, err := httpguts.PunycodeHostPort(name); err == nil {
		return ascii
	}
	return name
}

// send sends one attempt and reports the outcome to the limits.
func (rt *roundTrip) send(req *http.Request) {
	a := rt.attempt
	if rt.info.Attempts++; rt.info.Attempts == 1 && !rt.noRetry {
		rt.countForBudget()
	}
	if tr := rt.trace; tr.AttemptStart != nil || tr.AttemptDone != nil || tr.Retry != nil {
		a.tracedAt = rt.t.resolved.clock.Now()
		if tr.AttemptStart != nil {
			tr.AttemptStart(req, AttemptInfo{Attempt: rt.info.Attempts, Sent: a.tracedAt})
		}
	}
	rt.sendToBase(req)
	var now time.Time // stays zero for a success, which needs no time
	if a.err != nil || a.resp.StatusCode >= 400 {
		now = rt.t.resolved.clock.Now()
	}
	f := rt.t.resolved.feedback.FeedbackReport(rt.req, a.ticket.Demands[rt.quotaIndex], a.resp, a.err, a.grantedAt, now, a.limitBuf[:0], &a.report)
	f.Repeated = rt.failures < rt.info.Attempts-1 // an earlier attempt was throttled
	if a.err == nil && a.resp.Body != http.NoBody && rt.holdsUntilEnd() {
		f.State = throttle.Ongoing
	}
	rt.t.resolved.queue.Report(rt.ctx, &a.ticket, f)
	a.granted, a.outcome, a.retryAfter, a.endedAt = f.State == throttle.Ongoing, f.Outcome, f.RetryAfter, f.Now
	if a.measured {
		rt.observeLatency(f.Cause)
	}
	if f := rt.trace.AttemptDone; f != nil {
		f(req, rt.attemptDoneInfo())
	}
}

// resultAt returns the time at which a ended. For a success, the first call reads it.
func (a *attempt) resultAt() time.Time {
	if a.endedAt.IsZero() {
		a.endedAt = a.t.resolved.clock.Now()
	}
	return a.endedAt
}

// observeLatency reports to the Tracker how long the latest attempt took, if the server
// accepted it, or the caller's deadline ended it after a wait, which left too little time.
func (rt *roundTrip) observeLatency(cause throttle.Cause) {
	a, end := rt.attempt, rt.attempt.resultAt()
	took := end.Sub(a.grantedAt)
	if a.outcome == throttle.Accepted {
		rt.t.resolved.feedback.ObserveLatency(rt.req, took, end)
		return
	}
	deadline, hasDeadline := rt.ctx.Deadline()
	if waited := a.ticket.Waited(); waited > 0 && cause == throttle.CauseCanceled && hasDeadline && time.Until(deadline) <= 0 {
		rt.t.resolved.feedback.ObserveExpired(rt.req, took, waited, end)
	}
}

// holdsUntilEnd reports whether a limit of the program holds its claim until the end of the
// response body. Those of the Tracker do not.
func (rt *roundTrip) holdsUntilEnd() bool {
	return slices.ContainsFunc(rt.attempt.ticket.Demands[:rt.quotaIndex], func(d throttle.Demand) bool {
		return d.Limiter != nil && !d.Limiter.Traits().EndsAtResponse
	})
}

// sendToBase calls Base.RoundTrip, and sets resp or err, as the contract of http.RoundTripper requires.
func (rt *roundTrip) sendToBase(req *http.Request) {
	a := rt.attempt
	rt.body.pending, rt.body.givenToBase = nil, true // Base closes it
	a.sent, a.outcome = req, throttle.Failed         // Failed until there is a response
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
	if resp != nil && resp.Request == nil {
		resp.Request = req
	}
	if a.cancel != nil {
		if err = a.endContext(resp, err); err != nil {
			resp = nil
		}
	}
	a.resp, a.err = resp, err
	if err == nil && resp.StatusCode >= 500 && a.breakerDone != nil { // other responses are successes, also 429
		err = fmt.Errorf("heed: server responded %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	}
	a.reportToBreaker(err)
}

// endContext stops the timer of a, and ends its context if the response has no body. It
// returns err, or errAttemptTimeout if the timer has fired: a response that arrives then is
// closed, because its body cannot be read.
func (a *attempt) endContext(resp *http.Response, err error) error {
	if !a.timer.Stop() && err == nil && resp.Body != http.NoBody {
		closeBody(resp.Body)
		err = errAttemptTimeout
	}
	if err != nil && a.ctx.Err() == nil && errors.Is(context.Cause(a.sent.Context()), errAttemptTimeout) {
		err = errAttemptTimeout
	}
	if err != nil || resp.Body == http.NoBody {
		a.cancel(nil)
		a.cancel = nil
	}
	return err
}

// reportToBreaker reports the result of an attempt to the Breaker that allowed it, if one did
// and does not have the result yet.
func (a *attempt) reportToBreaker(err error) {
	if done := a.breakerDone; done != nil {
		a.breakerDone = nil // cleared before the call, which may panic
		done(err)
	}
}

// waitForRetry discards the response and sleeps for the delay.
func (rt *roundTrip) waitForRetry() (err error) {
	if f := rt.trace.Retry; f != nil {
		i := RetryInfo{AttemptInfo: rt.attemptDoneInfo(), Delay: rt.delay}
		i.RetryAfter = rt.attempt.report.RetryAfter
		f(rt.req, i)
	}
	rt.discard()
	if rt.body.rewinder != nil {
		if rt.body.pending, err = rt.body.rewinder.rewind(rt.ctx); err != nil {
			return err
		}
	}
	if rt.delay <= 0 {
		return nil
	}
	return rt.sleep(rt.delay)
}

// discard ends the attempt, whose response is not returned now, and records its result.
func (rt *roundTrip) discard() {
	a := rt.attempt
	past := Attempt{Status: statusOf(a.resp), Err: a.err}
	rt.discarded = drained{complete: a.resp != nil}
	if a.resp != nil && a.resp.Body != http.NoBody {
		rt.discarded = drain(rt.ctx, a.resp)
		past.Body = httpbody.Snippet(rt.discarded.data)
	}
	rt.discarded.resp, rt.discarded.sent = a.resp, a.sent
	a.end()
	*a = attempt{t: a.t, ctx: a.ctx, ticket: a.ticket, demandSpace: a.demandSpace}
	rt.pastAttempts = append(rt.pastAttempts, past)
}

// finish returns the result of the call: the response of the attempt with its Info, or an error.
func (rt *roundTrip) finish() (*http.Response, error) {
	a := rt.attempt
	if a.resp == nil || rt.stoppedByHook {
		if rt.info.StopReason == nil && rt.info.Attempts == 1 {
			return nil, a.err
		}
		rt.discard()
		return nil, rt.giveUp()
	}
	return rt.withInfo(a.resp, a.sent), nil
}

// withInfo adds the Info to resp, the response to sent, unless InfoFrom knows it without.
func (rt *roundTrip) withInfo(resp *http.Response, sent *http.Request) *http.Response {
	if r := rt.t.resolved.quota.Reader; r != nil || !rt.info.isUneventful() || rt.retry.AttemptTimeout != 0 {
		n := &infoContext{Context: rt.ctx, info: rt.info, reader: r}
		n.owner = sent.WithContext(n)
		n.owner.Body, n.owner.GetBody = rt.req.Body, rt.req.GetBody
		resp.Request = n.owner // for InfoFrom, and because the context of the attempt ends with the body
	}
	return resp
}

// fail ends a call because of err, before the first attempt or between two attempts. It
// returns the last response if its whole body was read, the caller has not canceled the
// request and err is not that of a hook; otherwise it returns an error.
func (rt *roundTrip) fail(err error) (*http.Response, error) {
	rt.attempt.end()
	rt.info.StopReason = err
	final := rt.stoppedByHook || context.Cause(rt.ctx) != nil
	if d := &rt.discarded; d.complete && !final {
		d.resp.Body = d.reader()
		return rt.withInfo(d.resp, d.sent), nil
	}
	if rt.info.Attempts == 0 && !rt.failedByWaiting(err) {
		return nil, err
	}
	return nil, rt.giveUp()
}

// failedByWaiting reports whether err, which ended a call before its first attempt, is due to a wait that is or was too
// long. The deadline of the context is also due to a wait, if there was one: the GiveUpError then names the limit.
func (rt *roundTrip) failedByWaiting(err error) bool {
	switch {
	case rt.stoppedByHook:
		return false
	case context.Cause(rt.ctx) != nil:
		return errors.Is(rt.ctx.Err(), context.DeadlineExceeded) && rt.longestWait.Waited > 0
	}
	return hasType[*throttle.RejectedError](err) || errors.Is(err, ErrMaxWait) || errors.Is(err, context.DeadlineExceeded)
}

func (rt *roundTrip) giveUp() error {
	e := &GiveUpError{
		Method:      cmp.Or(rt.req.Method, http.MethodGet),
		URL:         httpbody.RedactURL(rt.req.URL),
		Attempts:    rt.pastAttempts,
		QueueWait:   rt.info.QueueWait,
		BackoffWait: rt.info.BackoffWait,
		LongestWait: rt.longestWait,
		Reason:      rt.info.StopReason,
	}
	if n := len(e.Attempts); n > 0 {
		e.Err = e.Attempts[n-1].Err
	}
	return e
}

// handOver makes the caller the owner of resp, the response that is returned, or nil. If the attempt still holds claims or
// a context, its body becomes the owner of the attempt.
func (rt *roundTrip) handOver(resp *http.Response) {
	a := rt.attempt
	a.resp = nil // end does not close it
	if a.granted || a.cancel != nil {
		resp.Body = a.observeBodyEnd(resp)
		rt.attempt = attemptPool.Get().(*attempt)
	}
}

// end ends what a holds: its context, its claim, and its permission of the Breaker. Units of
// an attempt that was not sent are returned.
func (a *attempt) end() {
	if a.cancel != nil {
		a.timer.Stop()
		a.cancel(nil)
		a.cancel = nil
	}
	if a.granted {
		a.granted = false
		if q := a.t.resolved.queue; a.sent != nil {
			q.Report(a.ctx, &a.ticket, throttle.Feedback{Now: a.t.resolved.clock.Now(), Outcome: a.outcome})
		} else {
			q.Report(a.ctx, &a.ticket, throttle.Feedback{State: throttle.Unused})
		}
	}
	if a.sent != nil {
		a.reportToBreaker(errNoResult)
	} else {
		a.reportToBreaker(errNotSent)
	}
}

// endCall ends a, and clears it for another call.
func (a *attempt) endCall() {
	a.end()
	clear(a.demandSpace[:cap(a.demandSpace)])
	space := a.demandSpace[:0]
	if cap(space) > 16 {
		space = nil // few requests have as many demands
	}
	*a = attempt{demandSpace: space}
}

// end releases what the call holds, also after a panic in a hook, a limiter or Base, and returns it to the pool.
func (rt *roundTrip) end() {
	rt.body.finish(rt.req)
	a := rt.attempt
	if a.resp != nil {
		closeBody(a.resp.Body)
	}
	a.endCall()
	*rt = roundTrip{attempt: a, hooks: rt.hooks}
	roundTripPool.Put(rt)
}
