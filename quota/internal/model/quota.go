package model

import (
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

// A Quota is everything that limits the requests of one quota of a server. A claim is granted if all of
// these admit it, which are asked in this order:
//
//	Peers            other processes use what is left, too: no more claims in flight than the part of this one
//	Hold             the server rejected a request: no claim until it ends, then one probe
//	Inference.Cut    a 429 stated nothing: no claim for one round trip, then fewer in flight
//	SlowStart        the host is not known: a bound on the claims in flight
//	Slow             the server responds late or fails: no more claims in flight than before
//	Estimates        the server states what is left: no more claims than that
//	Inference.Loop   the server rejects and states nothing: the rate that it accepts
//	Inference.Window or as many claims as it accepted in a window of time
//
// Each response updates all of them. A claim without a response counts as in flight until it is
// cancelled or observed. The time of a method is never before LastGranted.
type Quota struct {
	Units // counts requests

	Hold         hold.Hold
	SlowStart    concurrency.SlowStart
	Slow         concurrency.SlowResponses
	Inference    *Inference                // nil: no response was a possible rejection that states nothing
	Span         learnedlimit.AcceptedSpan // requests accepted since the latest idle time or hold
	LastResponse time.Time                 // when the latest response arrived; zero: none did, or it was not needed
	sentBefore   uint64                    // number of the latest claim then
	Peers        *peers.Set                // other processes that use the quota; nil: it is not shared
	follows      bool                      // another process sends the probe of the hold
}

// Claim decides on a claim of n units as of now, and grants it unless it is a dry run.
func (q *Quota) Claim(d *throttle.Decision, n int64, dryRun bool, now time.Time) {
	d.Policy = q.Account.Names.Quota
	if len(q.Estimates) > 0 {
		q.describe(d, now)
	}
	if q.Peers != nil {
		if d.Wait, d.OK = q.leaveToPeers(now); !d.OK {
			d.ServerImposed = true
			return
		}
	}
	if inf := q.Inference; inf != nil && !dryRun && inf.Limits() && inf.Loop.On() && inf.Loop.Grow(now, q.LastGranted, &inf.accepted) {
		q.dropLoop(false, now)
	}
	if q.InFlight.Open > 0 && !dryRun && q.isLate(now) {
		q.hang(now)
	}
	q.decide(d, n, dryRun, now)
	if dryRun {
		return
	}
	if q.SlowStart.Denied = !d.OK; d.OK {
		d.Grant = q.grant(n, now)
	}
}

// ChangesWithTime reports whether a claim as of now may change what q knows, although no response has arrived:
// the rate of the loop grows, or the requests in flight hang.
func (q *Quota) ChangesWithTime(now time.Time) bool {
	return q.Inference != nil && q.Inference.Limits() && q.Inference.Loop.On() || q.InFlight.Open > 0 && q.isLate(now)
}

// isLate reports whether the requests in flight hang as of now.
func (q *Quota) isLate(now time.Time) bool {
	return q.Account.Full && q.Slow.IsLate(now.Sub(ticks.Later(q.Slow.Sent, q.LastResponse)))
}

// describe sets Limit, Remaining and ResetAfter of d: those of the estimate with the fewest units
// left.
func (q *Quota) describe(d *throttle.Decision, now time.Time) {
	for i := range q.Estimates {
		e := &q.Estimates[i]
		if left := max(e.Remaining-q.InFlight.Open, 0); d.Limit == 0 || left < d.Remaining {
			d.Limit, d.Remaining, d.ResetAfter = max(e.Limit, 1), left, max(e.Reset.Sub(now), 0)
		}
	}
}

// decide sets OK of d, and if that is false Wait, Policy, ServerImposed and Estimated. It changes
// nothing else. A dry run is not limited by bounds on the claims in flight: these end with a
// response.
func (q *Quota) decide(d *throttle.Decision, n int64, dryRun bool, now time.Time) {
	a, inf := q.Account, q.Inference
	names, full := &a.Names, a.Full
	if q.Hold.Active || q.Hold.Until.After(now) {
		if d.Wait, d.OK = q.Hold.Check(now, &q.InFlight); !d.OK {
			d.Policy, d.ServerImposed, d.Estimated = names.RetryAfter, true, q.Hold.Estimated
			if d.Estimated {
				d.Policy = names.LearnedRate
			}
			switch hanging := inf != nil && inf.hanging; {
			case hanging && d.Wait == 0 && q.InFlight.Open > 0:
				d.Wait = q.lateIn(now)
			case hanging && d.Estimated && q.InFlight.Count > q.InFlight.Open: // one that hangs may be accepted, which ends the stop, so no call may fail because it ends late
				d.Wait = min(d.Wait, concurrency.GrowEvery)
			}
			return
		}
	}
	if full && !dryRun {
		if d.Wait, d.OK = q.checkSlowStart(now); !d.OK {
			d.Policy = names.SlowStart
			return
		}
		if bound := q.Slow.MaxInFlight; bound > 0 && q.InFlight.Open >= bound && a.InitialConcurrency > 0 {
			d.Policy, d.OK = names.SlowResponses, false
			return
		}
	}
	for i := range q.Estimates {
		free, wait := q.Estimates[i].Free(now, &q.InFlight, a.Pacing)
		if free < min(n, max(q.Estimates[i].Limit, 1)) {
			d.Wait, d.OK, d.ServerImposed = wait, false, true
			return
		}
	}
	d.OK = true
	if inf == nil || !inf.Limits() {
		return
	}
	if full {
		d.Wait, d.OK = inf.Loop.Check(now)
		if d.OK && inf.hanging && !dryRun && q.InFlight.Open >= maxUnproven+q.Slow.SentUntilLate(inf.Loop.Rate) {
			d.Wait, d.OK = q.lateIn(now), false
		}
		if !d.OK {
			d.Policy, d.ServerImposed, d.Estimated = names.LearnedRate, true, true
			return
		}
	}
	if full || inf.Window.Declared {
		if d.Wait, d.OK = inf.Window.Check(now, &q.InFlight); !d.OK {
			d.ServerImposed, d.Estimated = true, !inf.Window.Declared
			if d.Estimated {
				d.Policy = names.LearnedRate
			}
		}
	}
}

// checkSlowStart reports whether slow start and the concurrency.Cut allow one more request in flight
// as of now. If not, wait is the time until they do without a response; 0: they do not.
func (q *Quota) checkSlowStart(now time.Time) (wait time.Duration, ok bool) {
	if q.Inference != nil {
		c := &q.Inference.Cut
		if wait = c.Until.Sub(now); wait > 0 {
			return wait, false
		}
		if c.MaxInFlight > 0 && q.InFlight.Open >= min(c.MaxInFlight, int64(max(q.SlowStart.Successes, 1))) {
			return 0, false
		}
	}
	bound := q.MaxInFlight()
	if bound == 0 || q.InFlight.Open < bound {
		return 0, true
	}
	since := ticks.Later(q.LastResponse, q.Span.Since)
	if since.IsZero() {
		return 0, false
	}
	if wait := 5 * q.Slow.Typical; wait <= concurrency.GrowEvery {
		since = since.Add(wait) // whether requests hang is decided before
	}
	more := now.Sub(since) / concurrency.GrowEvery
	return (more+1)*concurrency.GrowEvery - now.Sub(since), q.InFlight.Open < bound+int64(more)
}

// MaxInFlight returns the bound of slow start on the requests in flight; 0: there is none.
func (q *Quota) MaxInFlight() int64 {
	processes := 1
	if q.Peers != nil {
		processes += q.Peers.Len()
	}
	return q.SlowStart.Limit(q.Account.InitialConcurrency, len(q.Estimates) > 0, processes)
}

// grant records that a claim of n units is granted at now, and returns its number. After an idle
// time, what was accepted before shows nothing about the rate that is accepted now.
func (q *Quota) grant(n int64, now time.Time) (number uint64) {
	a, inf := q.Account, q.Inference
	for i := range q.Estimates {
		q.Estimates[i].Granted(now, &q.InFlight, a.Pacing, a.Random())
	}
	number = q.InFlight.Add()
	q.Slow.Granted(number, q.InFlight.Open, int64(a.InitialConcurrency), now)
	busyUntil := ticks.Later(q.LastGranted, q.Hold.Until)
	q.LastGranted = now
	if inf != nil {
		busyUntil = ticks.Later(busyUntil, inf.Loop.Next)
	}
	idle := q.Span.Since.IsZero() || now.Sub(busyUntil) > learnedlimit.IdleAfter
	if idle {
		q.Span = learnedlimit.AcceptedSpan{Since: now}
	}
	if inf == nil {
		return number
	}
	if idle {
		inf.Loop.BeginSpan(q.Span)
	}
	if inf.Limits() {
		if inf.Loop.On() {
			inf.Loop.Spend(n, now)
		}
		inf.Window.Granted(number, now)
	}
	return number
}

// Canceled applies that claim n, of a number of units, was not sent.
func (q *Quota) Canceled(n uint64, units int64) {
	if !q.InFlight.End(n) {
		return
	}
	if n == q.Slow.Watched {
		q.Slow.Watched = 0
	}
	if q.Inference != nil {
		q.Inference.Loop.Unspend(units)
		q.Inference.Window.Canceled(n)
	}
}

// Responded applies f, the response to claim n, which has ended. unitsUsedUp reports whether f states that
// another unit than requests is used up. unlimited is set if enough is known of the server, and it has shown
// no limit.
func (q *Quota) Responded(n uint64, f *throttle.Feedback, unitsUsedUp bool, now time.Time) (unlimited bool) {
	failed := f.Outcome == throttle.Failed
	if inf := q.Inference; inf != nil && f.Cause == throttle.CauseForbidden && f.Outcome == throttle.Accepted {
		failed = inf.Evidence.WasHealthy(f.Cause, now) // otherwise a permission is probably missing
	}
	if n > q.InFlight.Hung {
		q.Slow.Record(n, failed, q.InFlight.Sent, q.InFlight.Open, int64(q.Account.InitialConcurrency), now)
		q.LastResponse, q.sentBefore = now, q.InFlight.Sent
	} else if f.Outcome == throttle.Accepted && f.Cause == throttle.CauseUnknown || f.Cause == throttle.CauseCanceled {
		q.respondedAfterHang(n, now)
	}
	if f.Cause == throttle.CauseOtherQuota {
		return false
	}
	explained := unitsUsedUp
	if len(f.RemoteLimits)+len(q.Estimates) > 0 {
		explained = q.updateEstimates(n, f, now) || unitsUsedUp
	}
	if f.Outcome == throttle.Throttled {
		q.throttled(n, f, explained, now)
	}
	if f.Outcome != throttle.Accepted {
		return false
	}
	success := f.Cause == throttle.CauseUnknown
	if success && q.Inference != nil {
		q.succeeded(n, now)
	}
	if q.Hold.Active && q.Hold.Accepted(n, q.LastGranted) {
		q.released(now)
	}
	if !success {
		return false
	}
	q.Span.N++
	over := q.SlowStart.CountSuccess(q.InFlight.Open, q.Account.InitialConcurrency)
	return over && q.Inference == nil && len(q.Estimates) == 0 && q.Hold.LastSent == 0
}

// updateEstimates applies f, the response to claim n, to the limits that the server states. It
// reports whether one of them is used up, which explains a rejection.
func (q *Quota) updateEstimates(n uint64, f *throttle.Feedback, now time.Time) (explained bool) {
	if q.Inference != nil && q.Inference.Window.Declared && slices.ContainsFunc(f.RemoteLimits, statedlimit.CountsRequests) {
		q.Inference.Window = learnedlimit.Window{} // the server states what the program had declared
	}
	if f.Outcome == throttle.Accepted {
		for i := range q.Estimates {
			q.Estimates[i].Accepted(n, now)
		}
	}
	var stated [statedlimit.MaxEstimates]bool
	for _, l := range f.RemoteLimits {
		i := q.find(l, now)
		if i < 0 {
			continue
		}
		stated[i] = true
		e := &q.Estimates[i]
		hadLog := e.HasLog()
		e.UpdateByResponse(l, n, f.Outcome == throttle.Throttled, f.Outcome == throttle.Accepted, now, &q.InFlight)
		q.reserveLog(e, hadLog)
	}
	usedUp := Explains(f.RemoteLimits)
	for i := len(q.Estimates) - 1; i >= 0; i-- {
		e := &q.Estimates[i]
		switch {
		case stated[i], f.Outcome == throttle.Failed:
			continue
		case f.Outcome == throttle.Throttled && usedUp:
			e.Probe = e.Probe && n <= e.LastSent // another limit is used up, so the rejection shows nothing about e
			continue
		}
		before := bytesOf(q.Estimates[i : i+1])
		outdated := e.CountUnstated(n, f.Outcome == throttle.Accepted && q.Account.Full, now, &q.InFlight)
		q.Account.Memory.Release(before - bytesOf(q.Estimates[i:i+1]))
		if outdated {
			q.remove(i)
		}
	}
	return usedUp
}

// Explains reports whether nothing is left of one of limits.
func Explains(limits []throttle.RemoteLimit) bool {
	return slices.ContainsFunc(limits, func(l throttle.RemoteLimit) bool { return statedlimit.CountsRequests(l) && l.Remaining <= 0 })
}

// throttled applies f, the rejection of claim n. explained is set if a limit that the server states
// is used up. Without that, a cause that IsEstimated is left to the inference.
func (q *Quota) throttled(n uint64, f *throttle.Feedback, explained bool, now time.Time) {
	cause := f.Cause
	if cause == throttle.CauseUnknown && f.RetryAfter <= 0 && !explained {
		cause = throttle.CauseUnstated // the feedback is not from Tracker.Feedback
	}
	if IsEstimated[cause] && !explained {
		inf := q.Inference
		switch {
		case !q.Account.Full:
		case cause != throttle.CauseRetryNow:
			q.rejectedUnstated(n, cause, now)
		case inf != nil && (inf.stopPending || inf.Loop.On()) || q.Hold.Active:
			q.rejectedUnstated(n, throttle.CauseUnstated, now)
		}
		return
	}
	q.Hold.Rejected(n, now, q.rejectionOf(f.RetryAfter, now))
	if !explained {
		q.rejectedWithHold(n, f.RetryAfter, now)
	}
}

// rejectionOf returns the description of a rejection that states retryAfter, of a claim that has
// ended. Zero means that it states no wait.
func (q *Quota) rejectionOf(retryAfter time.Duration, now time.Time) hold.Rejection {
	window := time.Duration(0)
	for i := range q.Estimates {
		window = max(window, q.Estimates[i].Per)
	}
	return hold.Rejection{
		RetryAfter: retryAfter,
		Window:     window,
		MaxHold:    q.Account.Pacing.MaxHold,
		Spread:     q.spreadOfClients(),
		Random:     q.Account.Random(),
		Sent:       q.InFlight.Sent,
		InFlight:   max(q.InFlight.Open+1, int64(q.Span.Rate(now)*q.roundTrip().Seconds())), // by Little's law, if no limit was asked for its requests
	}
}

// spreadOfClients returns how much later than stated the first claim after a rejection may be
// granted. If all clients came back in whole seconds, they would come in the same order each time,
// and nothing would be left for the last ones.
func (q *Quota) spreadOfClients() time.Duration {
	for i := range q.Estimates {
		if q.Estimates[i].IsUsedByOthers() {
			return time.Second
		}
	}
	return 0
}

// StatesSame reports whether one of limits is probably one of q: it has the same name or, without a
// name, the same size and reset, and no more units left than q expects.
func (q *Quota) StatesSame(limits []throttle.RemoteLimit, now time.Time) bool {
	return slices.ContainsFunc(limits, func(l throttle.RemoteLimit) bool {
		i, own := q.estimateOf(l)
		return i >= 0 && (l.Name != "" || q.Estimates[i].Limit == own.Limit && q.Estimates[i].MayBeSameWindow(own, now))
	})
}

// StatesOther reports whether q has estimates, and none of them has the name of one of limits.
func (q *Quota) StatesOther(limits []throttle.RemoteLimit) bool {
	for _, l := range limits {
		for i := range q.Estimates {
			if q.Estimates[i].Name == l.Name {
				return false
			}
		}
	}
	return len(q.Estimates) > 0
}

// IsHeld reports whether a rejection limits the claims of q as of now.
func (q *Quota) IsHeld(now time.Time) bool {
	return q.Hold.Active || q.Hold.Until.After(now) || q.Inference != nil && q.Inference.Loop.On()
}

// IsBlank reports whether q knows nothing, except successful responses, and no claim is in flight.
func (q *Quota) IsBlank() bool {
	return q.InFlight.Open == 0 && len(q.Estimates) == 0 && !q.Hold.Active && q.Inference == nil
}

// Matches compares limits, which a response states, with those of q. may is set if the response may
// concern q: the limits have the sizes that q knows, a reset that such a window or bucket can have,
// and no more units left than possible. A new quota may have any limits until it has observed the
// response that it was added for. shown is set if the response shows that these are the limits of q:
// more than one unit is used, and about as many as q knows of. An unused quota cannot be
// distinguished from any other of its size. reordered is how many responses that q has not observed
// may have arrived earlier.
func (q *Quota) Matches(limits []throttle.RemoteLimit, reordered int64, now time.Time) (may, shown bool) {
	if len(q.Estimates) == 0 {
		return !q.Hold.Active && !q.Hold.Until.After(now) && q.Inference == nil, false
	}
	few := false
	for _, l := range limits {
		i, l := q.estimateOf(l)
		if i < 0 {
			continue
		}
		e := &q.Estimates[i]
		tolerated := reordered + q.InFlight.Span() + e.Limit/8
		if l.Limit != e.Limit || !e.MayBe(l, tolerated, now) {
			return false, false
		}
		over := !now.Before(e.Reset.Add(-statedlimit.ToleranceOf(l)))
		may, few, shown = true, few || !over && l.Remaining < e.Left(now)-tolerated, shown || l.Limit-l.Remaining > 1
	}
	return may, shown && !few
}
