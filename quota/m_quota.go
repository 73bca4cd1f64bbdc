package quota

import (
	"math"
	"slices"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/peers"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// A modelQuota is everything that limits the requests of one quota of a server. A claim is granted if all of
// these admit it, which are asked in this order:
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
// It has no clock and no lock: each method gets the time, which is never before lastGranted.
type modelQuota struct {
	modelUnits // counts requests

	hold         hold.Hold
	slowStart    concurrency.SlowStart
	slow         concurrency.SlowResponses
	inference    *inference                // nil: no response was a possible rejection that states nothing
	span         learnedlimit.AcceptedSpan // requests accepted since the latest idle time or hold
	lastResponse time.Time                 // when the latest response arrived; zero: none did, or it was not needed
	sentBefore   uint64                    // number of the latest claim then
	peers        *peers.Set                // other processes that use the quota; nil: it is not shared
}

// claim decides on a claim of n units as of now, and grants it unless it is a dry run.
func (q *modelQuota) claim(d *throttle.Decision, n int64, dryRun bool, now time.Time) {
	d.Policy = q.account.names.quota
	if len(q.estimates) > 0 {
		q.describe(d, now)
	}
	if q.peers != nil {
		if d.Wait, d.OK = q.leaveToPeers(now); !d.OK {
			d.ServerImposed = true
			return
		}
	}
	if inf := q.inference; inf != nil && !dryRun && inf.limits() && inf.loop.On() && inf.loop.Grow(now, q.lastGranted, &inf.accepted) {
		q.dropLoop(false, now)
	}
	if q.inFlight.Open > 0 && !dryRun && q.isLate(now) {
		q.hang(now)
	}
	q.decide(d, n, dryRun, now)
	if dryRun {
		return
	}
	if q.slowStart.Denied = !d.OK; d.OK {
		d.Grant = q.grant(n, now)
	}
}

// changesWithTime reports whether a claim as of now may change what q knows, although no response has arrived:
// the rate of the loop grows, or the requests in flight hang.
func (q *modelQuota) changesWithTime(now time.Time) bool {
	return q.inference != nil && q.inference.limits() && q.inference.loop.On() || q.inFlight.Open > 0 && q.isLate(now)
}

// isLate reports whether the requests in flight hang as of now.
func (q *modelQuota) isLate(now time.Time) bool {
	return q.account.Full && q.slow.IsLate(now.Sub(ticks.Later(q.slow.Sent, q.lastResponse)))
}

// describe sets Limit, Remaining and ResetAfter of d: those of the estimate with the fewest units
// left.
func (q *modelQuota) describe(d *throttle.Decision, now time.Time) {
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
func (q *modelQuota) decide(d *throttle.Decision, n int64, dryRun bool, now time.Time) {
	a, inf := q.account, q.inference
	names, full := &a.names, a.Full
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
		if bound := q.slow.MaxInFlight; bound > 0 && q.inFlight.Open >= bound && a.InitialConcurrency > 0 {
			d.Policy, d.OK = names.slowResponses, false
			return
		}
	}
	for i := range q.estimates {
		free, wait := q.estimates[i].Free(now, &q.inFlight, a.Pacing)
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
func (q *modelQuota) checkSlowStart(now time.Time) (wait time.Duration, ok bool) {
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
func (q *modelQuota) maxInFlight() int64 {
	processes := 1
	if q.peers != nil {
		processes += q.peers.Len()
	}
	return q.slowStart.Limit(q.account.InitialConcurrency, len(q.estimates) > 0, processes)
}

// grant records that a claim of n units is granted at now, and returns its number. After an idle
// time, what was accepted before shows nothing about the rate that is accepted now.
func (q *modelQuota) grant(n int64, now time.Time) (number uint64) {
	a, inf := q.account, q.inference
	for i := range q.estimates {
		q.estimates[i].Granted(now, &q.inFlight, a.Pacing, a.Random())
	}
	number = q.inFlight.Add()
	q.slow.Granted(number, q.inFlight.Open, int64(a.InitialConcurrency), now)
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

// canceled applies that claim n, of a number of units, was not sent.
func (q *modelQuota) canceled(n uint64, units int64) {
	if !q.inFlight.End(n) {
		return
	}
	if n == q.slow.Watched {
		q.slow.Watched = 0
	}
	if q.inference != nil {
		q.inference.loop.Unspend(units)
		q.inference.window.Canceled(n)
	}
}

// responded applies f, the response to claim n, which has ended. unitsUsedUp reports whether f states that
// another unit than requests is used up. unlimited is set if enough is known of the server, and it has shown
// no limit.
func (q *modelQuota) responded(n uint64, f *throttle.Feedback, unitsUsedUp bool, now time.Time) (unlimited bool) {
	failed := f.Outcome == throttle.Failed
	if inf := q.inference; inf != nil && f.Cause == throttle.CauseForbidden && f.Outcome == throttle.Accepted {
		failed = inf.evidence.WasHealthy(f.Cause, now) // otherwise a permission is probably missing
	}
	if n > q.inFlight.Hung {
		q.slow.Record(n, failed, q.inFlight.Sent, q.inFlight.Open, int64(q.account.InitialConcurrency), now)
		q.lastResponse, q.sentBefore = now, q.inFlight.Sent
	} else if f.Outcome == throttle.Accepted && f.Cause == throttle.CauseUnknown || f.Cause == throttle.CauseCanceled {
		q.respondedAfterHang(n, now)
	}
	if f.Cause == throttle.CauseOtherQuota {
		return false
	}
	explained := unitsUsedUp
	if len(f.RemoteLimits)+len(q.estimates) > 0 {
		explained = q.updateEstimates(n, f, now) || unitsUsedUp
	}
	if f.Outcome == throttle.Throttled {
		q.throttled(n, f, explained, now)
	}
	if f.Outcome != throttle.Accepted {
		return false
	}
	success := f.Cause == throttle.CauseUnknown
	if success && q.inference != nil {
		q.succeeded(n, now)
	}
	if q.hold.Active && q.hold.Accepted(n, q.lastGranted) {
		q.released(now)
	}
	if !success {
		return false
	}
	q.span.N++
	over := q.slowStart.CountSuccess(q.inFlight.Open, q.account.InitialConcurrency)
	return over && q.inference == nil && len(q.estimates) == 0 && q.hold.LastSent == 0
}

// updateEstimates applies f, the response to claim n, to the limits that the server states. It
// reports whether one of them is used up, which explains a rejection.
func (q *modelQuota) updateEstimates(n uint64, f *throttle.Feedback, now time.Time) (explained bool) {
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
		outdated := e.CountUnstated(n, f.Outcome == throttle.Accepted && q.account.Full, now, &q.inFlight)
		q.account.memory.Release(before - bytesOf(q.estimates[i:i+1]))
		if outdated {
			q.remove(i)
		}
	}
	return usedUp
}

// explains reports whether nothing is left of one of limits.
func explains(limits []throttle.RemoteLimit) bool {
	return slices.ContainsFunc(limits, func(l throttle.RemoteLimit) bool { return statedlimit.CountsRequests(l) && l.Remaining <= 0 })
}

// throttled applies f, the rejection of claim n. explained is set if a limit that the server states
// is used up. Without that, a cause that isEstimated is left to the inference.
func (q *modelQuota) throttled(n uint64, f *throttle.Feedback, explained bool, now time.Time) {
	cause := f.Cause
	if cause == throttle.CauseUnknown && f.RetryAfter <= 0 && !explained {
		cause = throttle.CauseUnstated // the feedback is not from Tracker.Feedback
	}
	if isEstimated[cause] && !explained {
		inf := q.inference
		switch {
		case !q.account.Full:
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
func (q *modelQuota) rejectionOf(retryAfter time.Duration, now time.Time) hold.Rejection {
	window := time.Duration(0)
	for i := range q.estimates {
		window = max(window, q.estimates[i].Per)
	}
	return hold.Rejection{
		RetryAfter: retryAfter,
		Window:     window,
		MaxHold:    q.account.Pacing.MaxHold,
		Spread:     q.spreadOfClients(),
		Random:     q.account.Random(),
		Sent:       q.inFlight.Sent,
		InFlight:   max(q.inFlight.Open+1, int64(q.span.Rate(now)*q.roundTrip().Seconds())), // by Little's law, if no limit was asked for its requests
	}
}

// spreadOfClients returns how much later than stated the first claim after a rejection may be
// granted. If all clients came back in whole seconds, they would come in the same order each time,
// and nothing would be left for the last ones.
func (q *modelQuota) spreadOfClients() time.Duration {
	for i := range q.estimates {
		if q.estimates[i].IsUsedByOthers() {
			return time.Second
		}
	}
	return 0
}

// statesSame reports whether one of limits is probably one of q: it has the same name or, without a
// name, the same size and reset, and no more units left than q expects.
func (q *modelQuota) statesSame(limits []throttle.RemoteLimit, now time.Time) bool {
	return slices.ContainsFunc(limits, func(l throttle.RemoteLimit) bool {
		i, own := q.estimateOf(l)
		return i >= 0 && (l.Name != "" || q.estimates[i].Limit == own.Limit && q.estimates[i].MayBeSameWindow(own, now))
	})
}

// statesOther reports whether q has estimates, and none of them has the name of one of limits.
func (q *modelQuota) statesOther(limits []throttle.RemoteLimit) bool {
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
func (q *modelQuota) isHeld(now time.Time) bool {
	return q.hold.Active || q.hold.Until.After(now) || q.inference != nil && q.inference.loop.On()
}

// isBlank reports whether q knows nothing, except successful responses, and no claim is in flight.
func (q *modelQuota) isBlank() bool {
	return q.inFlight.Open == 0 && len(q.estimates) == 0 && !q.hold.Active && q.inference == nil
}

// matches compares limits, which a response states, with those of q. may is set if the response may
// concern q: the limits have the sizes that q knows, a reset that such a window or bucket can have,
// and no more units left than possible. A new quota may have any limits until it has observed the
// response that it was added for. shown is set if the response shows that these are the limits of q:
// more than one unit is used, and about as many as q knows of. An unused quota cannot be
// distinguished from any other of its size. reordered is how many responses that q has not observed
// may have arrived earlier.
func (q *modelQuota) matches(limits []throttle.RemoteLimit, reordered int64, now time.Time) (may, shown bool) {
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

// applyLimits applies limits that another process knows. In a window that is known, the reset stays as it
// is: it would move by the transmission time with each update.
func (q *modelQuota) applyLimits(limits []throttle.RemoteLimit, now time.Time) {
	for _, l := range limits {
		i := q.find(l, now)
		if i < 0 {
			continue
		}
		e := &q.estimates[i]
		if now.Before(e.Reset) && statedlimit.ResetOf(l, now).Sub(e.Reset).Abs() < statedlimit.Tolerance {
			l.ResetAfter = e.Reset.Sub(now)
		}
		e.CarryJitter(now, q.inFlight.Open)
		q.updateEstimate(e, l, 0, now)
	}
}

// leaveToPeers reports whether a claim may be granted as of now, as far as peers are concerned.
// If not, wait is the time until that may change; 0: when a response arrives.
func (q *modelQuota) leaveToPeers(now time.Time) (wait time.Duration, ok bool) {
	if q.peers.Drop(now) == 0 {
		return 0, true
	}
	if _, open := q.hold.Check(now, &q.inFlight); !open {
		return 0, true // the hold is the reason to wait
	}
	left := int64(math.MaxInt64) // of the estimate with the fewest units
	for i := range q.estimates {
		if e := &q.estimates[i]; !e.Probe && !e.CountsInFlight() && now.Before(e.Reset) {
			left = min(left, e.Left(now))
		}
	}
	if left <= 0 || left == math.MaxInt64 {
		return 0, true // there is nothing to divide
	}
	part, next := q.peers.Part(left, q.account.Random, now)
	switch {
	case q.inFlight.Open < part:
		return 0, true
	case q.inFlight.Open > 0:
		return 0, false
	}
	return next, false
}
