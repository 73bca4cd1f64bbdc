package quota

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A quota is one quota of a server, as a throttle.Limiter. A claim is granted if all of these admit
// it, which are asked in this order:
//
//	hold             the server rejected a request: no claim until it ends, then one probe
//	inference.cut    a 429 stated nothing: no claim for one round trip, then fewer in flight
//	slowStart        the host is not known: a bound on the claims in flight
//	slow             the server responds late or fails: no more claims in flight than before
//	estimates        the server states what is left: no more claims than that
//	inference.loop   the server rejects and states nothing: the rate that it accepts
//	inference.window or as many claims as it accepted in a window of time
//
// Each response updates all of them. A claim without a response counts as in flight until it is
// cancelled or observed.
//
// The fields are guarded by mu of its unitQuota, except named and small. It is locked after endpoint.mu, and before
// that of units.
type quota struct {
	unitQuota // counts requests

	hold         hold.Hold
	slowStart    concurrency.SlowStart
	slow         concurrency.SlowResponses
	units        []*unitQuota              // limits in other units
	inference    *inference                // nil: no response was a possible rejection that states nothing
	span         learnedlimit.AcceptedSpan // requests accepted since the latest idle time or hold
	lastResponse time.Time                 // when the latest response arrived; zero: none did, or it was not needed
	sentBefore   uint64                    // number of the latest claim then
	shared       *sharedState              // nil: there is no Tracker.Exchange

	named bool                       // its route is a quota name, see WithName; guarded by endpoint.mu
	small atomic.Pointer[smallQuota] // admits claims in its place; nil: none
}

// newQuota returns a quota of ep that has the number of successful responses and, apart from a
// declared limit, knows nothing. Its memory is reserved when it is added to ep.quotas.
func (ep *endpoint) newQuota(successes int) *quota {
	q := &quota{unitQuota: unitQuota{endpoint: ep, policy: ep.names.quota}, slowStart: concurrency.SlowStart{Successes: successes}}
	if ep.tracker.sharing != nil {
		q.shared = new(sharedState)
	}
	if all := ep.tracker.declared.Load(); all != nil {
		if l, ok := (*all)[ep.host]; ok {
			q.declare(l)
		}
	}
	return q
}

// Reserve implements throttle.Limiter. The Wait of a claim that is not granted is 0 if the decision
// can only change with a response. A dry run changes nothing. A quota that is shared leaves units to
// other processes, and publishes its probes.
func (q *quota) Reserve(ctx context.Context, c throttle.Claim) (d throttle.Decision, err error) {
	if small := q.small.Load(); small != nil {
		return small.Reserve(ctx, c)
	}
	n, err := c.Units()
	if err != nil {
		return d, err
	}
	t, shared := q.endpoint.tracker, q.endpoint.id != ""
	if c.Now.IsZero() {
		c.Now = t.now() // not under a lock
	}
	var probe *Update // nil: there is none
	q.mu.Lock()
	defer func() {
		if q.mu.Unlock(); probe != nil {
			t.sharing.publish(q.endpoint, *probe)
		}
	}()
	now := ticks.Later(c.Now, q.lastGranted)
	d.Policy, d.At = q.policy, now
	if len(q.estimates) > 0 {
		q.describe(&d, now)
	}
	if shared {
		if d.Wait, d.OK = q.leaveToPeers(now); !d.OK {
			d.ServerImposed = true
			return d, nil
		}
	}
	if inf := q.inference; inf != nil && !c.DryRun && inf.limits() && inf.loop.On() {
		if l := t.listeners.Load(); l != nil {
			defer l.watch(q, now)()
		}
		if inf.loop.Grow(now, q.lastGranted, &inf.accepted) {
			q.dropLoop(false, now)
		}
	}
	if q.inFlight.Open > 0 && !c.DryRun && t.Mode == Full && q.slow.IsLate(now.Sub(ticks.Later(q.slow.Sent, q.lastResponse))) {
		q.hang(now)
	}
	q.decide(&d, n, c.DryRun, now)
	if c.DryRun {
		return d, nil
	}
	if q.slowStart.Denied = !d.OK; d.OK {
		if d.Grant = q.grant(n, now); shared {
			probe = q.newProbe(d.Grant)
		}
	}
	return d, nil
}

// change calls f with q locked, and records the events for what f has changed. The time of f is now,
// but never before the latest granted claim.
func (q *quota) change(now time.Time, f func(now time.Time)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now = ticks.Later(now, q.lastGranted)
	if l := q.endpoint.tracker.listeners.Load(); l != nil {
		defer l.watch(q, now)()
	}
	f(now)
}

// describe sets Limit, Remaining and ResetAfter of d: those of the estimate with the fewest units
// left.
func (q *quota) describe(d *throttle.Decision, now time.Time) {
	for i := range q.estimates {
		e := &q.estimates[i]
		if left := max(e.Remaining-q.inFlight.Open, 0); d.Limit == 0 || left < d.Remaining {
			d.Limit, d.Remaining, d.ResetAfter = max(e.Limit, 1), left, max(e.Reset.Sub(now), 0)
		}
	}
}

// decide sets OK of d, and if that is false Wait, Policy, ServerImposed and Estimated. It changes
// nothing else. A dry run is not limited by bounds on the claims in flight: these end with a
// response.
func (q *quota) decide(d *throttle.Decision, n int64, dryRun bool, now time.Time) {
	t, names, inf := q.endpoint.tracker, &q.endpoint.names, q.inference
	full := t.Mode == Full
	if q.hold.Active || q.hold.Until.After(now) {
		if d.Wait, d.OK = q.hold.Check(now, &q.inFlight); !d.OK {
			d.Policy, d.ServerImposed, d.Estimated = names.retryAfter, true, q.hold.Estimated
			if d.Estimated {
				d.Policy = names.learnedRate
			}
			switch hanging := inf != nil && inf.hanging; {
			case hanging && d.Wait == 0 && q.inFlight.Open > 0:
				d.Wait = q.lateIn(now)
			case hanging && d.Estimated && q.inFlight.Count > q.inFlight.Open: // one that hangs may be accepted, which ends the stop, so no call may fail because it ends late
				d.Wait = min(d.Wait, concurrency.GrowEvery)
			}
			return
		}
	}
	if full && !dryRun {
		if d.Wait, d.OK = q.checkSlowStart(now); !d.OK {
			d.Policy = names.slowStart
			return
		}
		if bound := q.slow.MaxInFlight; bound > 0 && q.inFlight.Open >= bound && t.initialConcurrency > 0 {
			d.Policy, d.OK = names.slowResponses, false
			return
		}
	}
	for i := range q.estimates {
		free, wait := q.estimates[i].Free(now, &q.inFlight, t.pacing)
		if free < min(n, max(q.estimates[i].Limit, 1)) {
			d.Wait, d.OK, d.ServerImposed = wait, false, true
			return
		}
	}
	d.OK = true
	if inf == nil || !inf.limits() {
		return
	}
	if full {
		d.Wait, d.OK = inf.loop.Check(now)
		if d.OK && inf.hanging && !dryRun && q.inFlight.Open >= maxUnproven+q.slow.SentUntilLate(inf.loop.Rate) {
			d.Wait, d.OK = q.lateIn(now), false
		}
		if !d.OK {
			d.Policy, d.ServerImposed, d.Estimated = names.learnedRate, true, true
			return
		}
	}
	if full || inf.window.Declared {
		if d.Wait, d.OK = inf.window.Check(now, &q.inFlight); !d.OK {
			d.ServerImposed, d.Estimated = true, !inf.window.Declared
			if d.Estimated {
				d.Policy = names.learnedRate
			}
		}
	}
}

// checkSlowStart reports whether slow start and the concurrency.Cut allow one more request in flight
// as of now. If not, wait is the time until they do without a response; 0: they do not.
func (q *quota) checkSlowStart(now time.Time) (wait time.Duration, ok bool) {
	if q.inference != nil {
		c := &q.inference.cut
		if wait = c.Until.Sub(now); wait > 0 {
			return wait, false
		}
		if c.MaxInFlight > 0 && q.inFlight.Open >= min(c.MaxInFlight, int64(max(q.slowStart.Successes, 1))) {
			return 0, false
		}
	}
	bound := q.maxInFlight()
	if bound == 0 || q.inFlight.Open < bound {
		return 0, true
	}
	since := ticks.Later(q.lastResponse, q.span.Since)
	if since.IsZero() {
		return 0, false
	}
	if wait := 5 * q.slow.Typical; wait <= concurrency.GrowEvery {
		since = since.Add(wait) // whether requests hang is decided before
	}
	more := now.Sub(since) / concurrency.GrowEvery
	return (more+1)*concurrency.GrowEvery - now.Sub(since), q.inFlight.Open < bound+int64(more)
}

// maxInFlight returns the bound of slow start on the requests in flight; 0: there is none.
func (q *quota) maxInFlight() int64 {
	processes := 1
	if q.shared != nil {
		processes += q.shared.peers.Len()
	}
	return q.slowStart.Limit(q.endpoint.tracker.initialConcurrency, len(q.estimates) > 0, processes)
}

// grant records that a claim of n units is granted at now, and returns its number. After an idle
// time, what was accepted before shows nothing about the rate that is accepted now.
func (q *quota) grant(n int64, now time.Time) (number uint64) {
	t, inf := q.endpoint.tracker, q.inference
	for i := range q.estimates {
		q.estimates[i].Granted(now, &q.inFlight, t.pacing, t.random())
	}
	number = q.inFlight.Add()
	q.slow.Granted(number, q.inFlight.Open, int64(t.initialConcurrency), now)
	busyUntil := ticks.Later(q.lastGranted, q.hold.Until)
	q.lastGranted = now
	if inf != nil {
		busyUntil = ticks.Later(busyUntil, inf.loop.Next)
	}
	idle := q.span.Since.IsZero() || now.Sub(busyUntil) > learnedlimit.IdleAfter
	if idle {
		q.span = learnedlimit.AcceptedSpan{Since: now}
	}
	if inf == nil {
		return number
	}
	if idle {
		inf.loop.BeginSpan(q.span)
	}
	if inf.limits() {
		if inf.loop.On() {
			inf.loop.Spend(n, now)
		}
		inf.window.Granted(number, now)
	}
	return number
}

// Cancel implements throttle.Limiter: the request of claim c was not sent.
func (q *quota) Cancel(ctx context.Context, c throttle.Claim, d throttle.Decision) {
	if small := q.small.Load(); small != nil {
		small.Cancel(ctx, c, d)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if n, err := c.Units(); err == nil && d.OK && q.inFlight.End(d.Grant) {
		if d.Grant == q.slow.Watched {
			q.slow.Watched = 0
		}
		if q.inference != nil {
			q.inference.loop.Unspend(n)
			q.inference.window.Canceled(d.Grant)
		}
	}
}

// Observe implements throttle.Observer. The first feedback on a claim counts as its response.
func (q *quota) Observe(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if small := q.small.Load(); small != nil {
		small.Observe(ctx, c, d, f)
		return
	}
	t := q.endpoint.tracker
	if f.Now.IsZero() {
		f.Now = t.now() // not under a lock
	}
	q.change(f.Now, func(now time.Time) {
		if d.OK && q.inFlight.End(d.Grant) {
			q.observe(d.Grant, &f, now)
		}
	})
	if l := t.listeners.Load(); l != nil {
		l.deliver()
	}
	if q.endpoint.id != "" {
		q.publish(f.Now)
	}
}

// observe applies f, the response to claim n.
func (q *quota) observe(n uint64, f *throttle.Feedback, now time.Time) {
	failed := f.Outcome == throttle.Failed
	if inf := q.inference; inf != nil && f.Cause == throttle.CauseForbidden && f.Outcome == throttle.Accepted {
		failed = inf.evidence.WasHealthy(f.Cause, now) // otherwise a permission is probably missing
	}
	if n > q.inFlight.Hung {
		q.slow.Record(n, failed, q.inFlight.Sent, q.inFlight.Open, int64(q.endpoint.tracker.initialConcurrency), now)
		q.lastResponse, q.sentBefore = now, q.inFlight.Sent
	} else if f.Outcome == throttle.Accepted && f.Cause == throttle.CauseUnknown || f.Cause == throttle.CauseCanceled {
		q.respondedAfterHang(n, now)
	}
	if f.Cause == throttle.CauseOtherQuota {
		return
	}
	explained := false
	if len(f.RemoteLimits)+len(q.estimates) > 0 {
		explained = q.updateEstimates(n, f, now)
	}
	if f.Outcome == throttle.Throttled {
		q.throttled(n, f, explained, now)
	}
	if f.Outcome != throttle.Accepted {
		return
	}
	success := f.Cause == throttle.CauseUnknown
	if success && q.inference != nil {
		q.succeeded(n, now)
	}
	if q.hold.Active && q.hold.Accepted(n, q.lastGranted) {
		q.released(now)
	}
	if !success {
		return
	}
	q.span.N++
	over := q.slowStart.CountSuccess(q.inFlight.Open, q.endpoint.tracker.initialConcurrency)
	if over && q.inference == nil && len(q.estimates) == 0 && q.hold.LastSent == 0 && !q.endpoint.hasQuotas.Load() {
		q.endpoint.unlimited.Store(true)
	}
}

// updateEstimates applies f, the response to claim n, to the limits that the server states. It
// reports whether one of them is used up, which explains a rejection.
func (q *quota) updateEstimates(n uint64, f *throttle.Feedback, now time.Time) (explained bool) {
	if q.inference != nil && q.inference.window.Declared && slices.ContainsFunc(f.RemoteLimits, statedlimit.CountsRequests) {
		q.inference.window = learnedlimit.Window{} // the server states what the program had declared
	}
	if f.Outcome == throttle.Accepted {
		for i := range q.estimates {
			q.estimates[i].Accepted(n, now)
		}
	}
	var stated [statedlimit.MaxEstimates]bool
	for _, l := range f.RemoteLimits {
		i := q.find(l, now)
		if i < 0 {
			continue
		}
		stated[i] = true
		e := &q.estimates[i]
		hadLog := e.HasLog()
		e.UpdateByResponse(l, n, f.Outcome == throttle.Throttled, f.Outcome == throttle.Accepted, now, &q.inFlight)
		q.reserveLog(e, hadLog)
	}
	usedUp := explains(f.RemoteLimits)
	for i := len(q.estimates) - 1; i >= 0; i-- {
		e := &q.estimates[i]
		switch {
		case stated[i], f.Outcome == throttle.Failed:
			continue
		case f.Outcome == throttle.Throttled && usedUp:
			e.Probe = e.Probe && n <= e.LastSent // another limit is used up, so the rejection shows nothing about e
			continue
		}
		before := bytesOf(q.estimates[i : i+1])
		outdated := e.CountUnstated(n, f.Outcome == throttle.Accepted && q.endpoint.tracker.Mode == Full, now, &q.inFlight)
		q.endpoint.release(before - bytesOf(q.estimates[i:i+1]))
		if outdated {
			q.remove(i)
		}
	}
	return usedUp || q.applyUnits(f.RemoteLimits, now)
}

// explains reports whether nothing is left of one of limits.
func explains(limits []throttle.RemoteLimit) bool {
	return slices.ContainsFunc(limits, func(l throttle.RemoteLimit) bool { return statedlimit.CountsRequests(l) && l.Remaining <= 0 })
}

// throttled applies f, the rejection of claim n. explained is set if a limit that the server states
// is used up. Without that, a cause that isEstimated is left to the inference.
func (q *quota) throttled(n uint64, f *throttle.Feedback, explained bool, now time.Time) {
	cause := f.Cause
	if cause == throttle.CauseUnknown && f.RetryAfter <= 0 && !explained {
		cause = throttle.CauseUnstated // the feedback is not from Tracker.Feedback
	}
	if isEstimated(cause) && !explained {
		inf := q.inference
		switch {
		case q.endpoint.tracker.Mode != Full:
		case cause != throttle.CauseRetryNow:
			q.rejectedUnstated(n, cause, now)
		case inf != nil && (inf.stopPending || inf.loop.On()) || q.hold.Active:
			q.rejectedUnstated(n, throttle.CauseUnstated, now)
		}
		return
	}
	q.hold.Rejected(n, now, q.rejectionOf(f.RetryAfter, now))
	if !explained {
		q.rejectedWithHold(n, f.RetryAfter, now)
	}
}

// rejectionOf returns the description of a rejection that states retryAfter, of a claim that has
// ended. Zero means that it states no wait.
func (q *quota) rejectionOf(retryAfter time.Duration, now time.Time) hold.Rejection {
	t, window := q.endpoint.tracker, time.Duration(0)
	for i := range q.estimates {
		window = max(window, q.estimates[i].Per)
	}
	return hold.Rejection{
		RetryAfter: retryAfter,
		Window:     window,
		MaxHold:    t.maxHold,
		Spread:     q.spreadOfClients(),
		Random:     t.random(),
		Sent:       q.inFlight.Sent,
		InFlight:   max(q.inFlight.Open+1, int64(q.span.Rate(now)*q.roundTrip().Seconds())), // by Little's law, if no limit was asked for its requests
	}
}

// spreadOfClients returns how much later than stated the first claim after a rejection may be
// granted. If all clients came back in whole seconds, they would come in the same order each time,
// and nothing would be left for the last ones.
func (q *quota) spreadOfClients() time.Duration {
	for i := range q.estimates {
		if q.estimates[i].IsUsedByOthers() {
			return time.Second
		}
	}
	return 0
}

// applyStated applies limits, which the response to a request that another quota granted states.
func (q *quota) applyStated(limits []throttle.RemoteLimit, now time.Time) {
	q.change(now, func(now time.Time) {
		q.update(limits, 0, now)
		q.applyUnits(limits, now)
	})
}

// statesSame reports whether one of limits is probably one of q: it has the same name or, without a
// name, the same size and reset, and no more units left than q expects.
func (q *quota) statesSame(limits []throttle.RemoteLimit, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.ContainsFunc(limits, func(l throttle.RemoteLimit) bool {
		i, own := q.estimateOf(l)
		return i >= 0 && (l.Name != "" || q.estimates[i].Limit == own.Limit && q.estimates[i].MayBeSameWindow(own, now))
	})
}

// statesOther reports whether q has estimates, and none of them has the name of one of limits.
func (q *quota) statesOther(limits []throttle.RemoteLimit) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range limits {
		for i := range q.estimates {
			if q.estimates[i].Name == l.Name {
				return false
			}
		}
	}
	return len(q.estimates) > 0
}

// isHeld reports whether a rejection limits the claims of q as of now.
func (q *quota) isHeld(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.hold.Active || q.hold.Until.After(now) || q.inference != nil && q.inference.loop.On()
}

// isBlank reports whether q knows nothing, except successful responses, and no claim is in flight.
func (q *quota) isBlank() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inFlight.Open == 0 && len(q.estimates)+len(q.units) == 0 && !q.hold.Active && q.inference == nil
}

// matches compares limits, which a response states, with those of q. may is set if the response may
// concern q: the limits have the sizes that q knows, a reset that such a window or bucket can have,
// and no more units left than possible. A new quota may have any limits until it has observed the
// response that it was added for. shown is set if the response shows that these are the limits of q:
// more than one unit is used, and about as many as q knows of. An unused quota cannot be
// distinguished from any other of its size. reordered is how many responses that q has not observed
// may have arrived earlier.
func (q *quota) matches(limits []throttle.RemoteLimit, reordered int64, now time.Time) (may, shown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.estimates) == 0 {
		return !q.hold.Active && !q.hold.Until.After(now) && q.inference == nil, false
	}
	few := false
	for _, l := range limits {
		i, l := q.estimateOf(l)
		if i < 0 {
			continue
		}
		e := &q.estimates[i]
		tolerated := reordered + q.inFlight.Span() + e.Limit/8
		if l.Limit != e.Limit || !e.MayBe(l, tolerated, now) {
			return false, false
		}
		over := !now.Before(e.Reset.Add(-statedlimit.ToleranceOf(l)))
		may, few, shown = true, few || !over && l.Remaining < e.Left(now)-tolerated, shown || l.Limit-l.Remaining > 1
	}
	return may, shown && !few
}
