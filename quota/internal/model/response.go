package model

import (
	"slices"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// CauseOtherQuota is the Cause of a rejection that states that a limit of another quota than the one that granted the
// request is used up.
const CauseOtherQuota = throttle.CauseCanceled + 1

// Responded applies f, the response to the claim of grant, which has ended. unitsUsedUp reports whether f states
// that another unit than requests is used up.
//
//	accepted     ends the hold if the request was sent after all rejected ones; counts for learned limits
//	rejected     a learned limit, if there is one, is lowered; otherwise it begins or confirms a hold
//	failed       the limiter counts it, and rejections that no hold and no limit explain
//	canceled     nothing, but that its caller gave up
//
// What f states of limits corrects the estimates, whatever the outcome.
func (q *Quota) Responded(grant uint64, f *throttle.Feedback, unitsUsedUp bool, now time.Time) {
	n := number(grant)
	canceled := f.Cause == throttle.CauseCanceled
	q.trip.ended(n, f.Outcome == throttle.Accepted, now)
	test, last := n == q.tests.claim, grant&lastChanceBit != 0
	if test {
		q.tests.claim = 0
	}
	if last {
		shows := !canceled && f.Cause != CauseOtherQuota
		q.tests.chanceEnded(shows && f.Outcome == throttle.Accepted, shows && f.Outcome == throttle.Throttled)
	}
	switch {
	case canceled:
		q.canceledInFlight(n, now)
		return
	case f.Cause == CauseOtherQuota:
		return
	}
	q.firsts.add(f)
	explained := unitsUsedUp
	if len(f.RemoteLimits)+len(q.Estimates) > 0 {
		explained = q.updateEstimates(n, f, test || last, now) || unitsUsedUp
	}
	if grant&guessBit != 0 {
		q.guessed(n, f.Outcome, now)
	}
	counted, held := false, q.Hold.Held
	switch {
	case f.Outcome == throttle.Throttled:
		counted = q.rejected(n, inFlight(grant), f, explained, now)
	case f.Outcome == throttle.Failed:
		counted = q.failed(n, f.Cause, now)
	default:
		q.accepted(n, now)
	}
	if test {
		q.tested(f, held, explained, now)
	}
	if !counted && !explained && !held && !q.Hold.Held {
		q.countOutcome(grant, f, now)
	}
}

// FirstAttempts measures which part of the latest requests was rejected: of first attempts, and of requests that had been
// rejected before. One of the latter may be rejected for what it is, and then shows nothing about others. It is no different from
// them if half of the first attempts are rejected, as most callers of a used-up limit have been, unless what is sent again is
// hardly ever accepted.
type firstAttempts struct{ rejected, again float32 } // parts

const (
	smoothing = 16     // requests in which a part follows the present ones
	fewFirsts = 1. / 8 // of the first attempts that are not rejected: with fewer, one that is rejected again is no different
	fewAgain  = 1. / 8 // of what is sent again, by the part of the first attempts that are not rejected: with fewer, it differs
)

// add counts f, the response to a request.
func (a *firstAttempts) add(f *throttle.Feedback) {
	part, rejected := &a.rejected, float32(0)
	if f.Repeated {
		part = &a.again
	}
	if f.Outcome == throttle.Throttled {
		rejected = 1
	}
	*part += (rejected - *part) / smoothing
}

// tells reports whether a rejection may be because of what its request is, which is repeated or not.
func (a *firstAttempts) tells(repeated bool) bool {
	first, again := 1-a.rejected, 1-a.again // not rejected
	return repeated && (first > 1./2 || first > fewFirsts && again < first*fewAgain)
}

// canceledInFlight applies that the caller of claim n gave up. If q has delayed it, that was too late.
func (q *Quota) canceledInFlight(n uint64, now time.Time) {
	if q.Overload.Limit() > 0 || q.Learned != nil && q.Learned.Limits() {
		q.GaveUp(now)
	}
}

// tested applies the response to the test. held reports whether a hold was on before it, and usedUp whether a limit that the
// server states is used up after it.
func (q *Quota) tested(f *throttle.Feedback, held, usedUp bool, now time.Time) {
	onTime := !held && !usedUp && len(f.RemoteLimits) > 0 && q.tests.end.Sub(now) <= statedlimit.Tolerance
	switch {
	case f.Outcome == throttle.Accepted:
		if onTime {
			q.tests.onTime(q.Account.Random(), now)
		} else {
			q.tests.accepted()
		}
		q.Account.Host.accepts(now)
	case f.Outcome == throttle.Throttled:
		q.tests.rejected(f.Cause == throttle.CauseUnavailable, q.Account.Random(), now)
		if held {
			q.Hold.Rejected++
		}
	default:
		q.tests.failed(q.Account.Random(), now)
	}
}

// guessed applies the response to claim n, a guess. Call it after updateEstimates.
func (q *Quota) guessed(n uint64, outcome throttle.Outcome, now time.Time) {
	switch outcome {
	case throttle.Throttled:
		q.guesses.rejected(n, q.InFlight.Sent, now)
	case throttle.Accepted:
		q.tests.returnChances(2)
		if !slices.ContainsFunc(q.Estimates, func(e statedlimit.Estimate) bool { return e.ResetsLater(now) }) { // no new window has begun
			q.guesses.accepted(q.trip.Typical())
		}
	}
}

// rejected applies the rejection f of claim n, which was sent with so many in flight. explained is set if a limit that the server states is used up. It
// reports whether a learned limit was lowered.
func (q *Quota) rejected(n uint64, with int64, f *throttle.Feedback, explained bool, now time.Time) (counted bool) {
	l := q.Learned
	if l != nil {
		l.successesInRow = 0
	}
	bare := f.RetryAfter <= 0
	if l != nil && n > 0 && l.Limits() && q.Account.Full && !explained {
		q.rejectedByLearned(n, f.RetryAfter, now)
		if bare || l.Window.Declared {
			return true
		}
		counted = true
	}
	if explained && bare {
		return counted // the limit delays the others
	}
	first, ending := !q.Hold.Suspected, q.Hold.Ending
	begins := q.Hold.Add(hold.Rejection{
		Claim: n, Sent: q.InFlight.Sent, Crowded: q.crowded(with, now), Repeated: q.firsts.tells(f.Repeated),
		After: min(f.RetryAfter, headers.MaxDelay), Server: f.Cause == throttle.CauseUnavailable, Released: q.Ramp.On(now), Share: q.Overload.Share(),
	}, now)
	if first && q.Account.Full && !explained {
		q.rememberSpan(now)
	}
	if begins || ending && q.Hold.Held && !q.Hold.Ending {
		q.follows = false
		q.beginHold(now)
	}
	return counted
}

// crowded reports whether a claim may be rejected because it was sent with so many in flight: more than with accepted ones.
// That explains no more rejections once those in flight have had time to end, since then one of the next ones would be accepted.
func (q *Quota) crowded(with int64, now time.Time) bool {
	return !q.Overload.Accepts(with) && !(q.Hold.Suspected && now.Sub(q.Hold.Since) > crowdedTrips*q.trip.Typical())
}

// RejectedElsewhere applies the rejection of a request that q did not grant.
func (q *Quota) RejectedElsewhere(f *throttle.Feedback, now time.Time) {
	q.rejected(0, 0, f, Explains(f.RemoteLimits), now)
}

// HoldAll holds requests for a time, because the server has documented that a rejection concerns all of the account.
func (q *Quota) HoldAll(wait time.Duration, now time.Time) {
	if wait <= 0 {
		return
	}
	q.Hold.Begin(q.InFlight.Sent, now.Add(min(wait, headers.MaxDelay)), now)
	q.tests.on = false
	q.tests.begin(true, q.trip.Typical(), now)
}

// failed applies that claim n failed for a cause. It reports whether a learned limit explains it.
func (q *Quota) failed(n uint64, cause throttle.Cause, now time.Time) (counted bool) {
	l := q.Learned
	if l == nil {
		return false
	}
	l.successesInRow = 0
	if !l.Loop.On() || l.Loop.Cause != cause || !q.Account.Full {
		return false
	}
	q.updateLoop(n, true, now)
	return true
}

// accepted applies that claim n was accepted.
func (q *Quota) accepted(n uint64, now time.Time) {
	q.Span.N++
	defer func() { q.passed++ }()
	q.Ramp.Resume(n, q.InFlight.Open, now)
	if q.Learned != nil {
		q.succeeded(n, now)
	}
	wasHeld, suspected := q.Hold.Held, q.Hold.Suspected
	ended, right := q.Hold.Accepted(n, now)
	if !ended {
		if suspected && !q.Hold.Suspected {
			q.passed = 0
		}
		if !wasHeld && !q.Hold.Suspected && q.Learned != nil && !q.Learned.before.Until.IsZero() && n > q.Learned.beforeSent {
			q.Learned.before = learnedlimit.AcceptedSpan{}
		}
		return
	}
	q.tests.on = false
	if !q.Hold.Ending {
		q.releaseHeld(now)
	}
	q.Hold.Ending, q.follows = false, false
	if right {
		q.Overload.Explained()
	}
	q.learn(right && q.Hold.Estimated(), now)
}

// countOutcome counts f, the response to the claim of grant, for the limiter.
func (q *Quota) countOutcome(grant uint64, f *throttle.Feedback, now time.Time) {
	limited := q.Overload.Limit() > 0
	v := q.Overload.Add(concurrency.Outcome{
		Claim: number(grant), Failed: f.Outcome != throttle.Accepted, With: inFlight(grant),
		Open: q.InFlight.Open + 1, Sent: q.InFlight.Sent, RoundTrip: q.trip.Typical(), CountOnly: !q.Account.Full,
	}, now)
	if v == concurrency.Independent && limited {
		q.openUp(now)
	}
	q.testRate(number(grant), f, now)
}

// openUp sends what has waited because of an estimate that was wrong at a growing rate.
func (q *Quota) openUp(now time.Time) {
	q.Ramp = concurrency.NewRamp(q.InFlight.Open, now, min(releaseTrips*4*q.trip.Typical(), maxRelease))
}

// GaveUp applies that a call has given up because it waited for too long. It reports whether claims that wait may be
// granted now.
func (q *Quota) GaveUp(now time.Time) (sooner bool) {
	if q.Overload.GaveUp(q.trip.Typical(), now) {
		q.openUp(now)
		return true
	}
	return q.Learned != nil && q.Account.Full && q.tryLearned(true, now)
}

// updateEstimates applies f, the response to claim n, to the limits that the server states. test reports whether it was
// granted as a test. It
// reports whether one of them delays the next requests, which explains a rejection.
func (q *Quota) updateEstimates(n uint64, f *throttle.Feedback, test bool, now time.Time) (explained bool) {
	if q.Learned != nil && q.Learned.Window.Declared && slices.ContainsFunc(f.RemoteLimits, statedlimit.CountsRequests) {
		q.Learned.Window = learnedlimit.Window{} // the server states what the program had declared
	}
	if f.Outcome == throttle.Accepted {
		for i := range q.Estimates {
			q.Estimates[i].Used(1)
		}
	}
	var stated [statedlimit.MaxEstimates]bool
	usedUp := false
	for _, l := range f.RemoteLimits {
		i := q.find(l, now)
		if i < 0 {
			continue
		}
		stated[i] = true
		e := &q.Estimates[i]
		usedUp = usedUp || e.TooFew(l.Remaining)
		if f.Outcome == throttle.Accepted && q.outlasts(e) && e.Outdated(l, n, now) {
			continue
		}
		e.UpdateByResponse(l, n, f.Outcome == throttle.Throttled, f.Outcome == throttle.Accepted, q.firsts.tells(f.Repeated), now, &q.InFlight)
	}
	if f.Outcome == throttle.Accepted {
		for i := range q.Estimates {
			e, trips := &q.Estimates[i], time.Duration(0)
			if e.Proven() {
				trips = releaseTrips // what nothing has confirmed has hardly delayed anything
			}
			obeyed := !e.Distrusted()
			if e.Accepted(n, test, now); obeyed && q.tests.on && e.Distrusted() {
				q.release(q.tests.since, trips, now)
			}
		}
	}
	explained = usedUp && slices.ContainsFunc(q.Estimates, func(e statedlimit.Estimate) bool {
		return e.TooFew(e.Remaining) && e.Reset.Sub(now) >= q.trip.Typical() && !e.Distrusted()
	})
	for i := len(q.Estimates) - 1; i >= 0; i-- {
		e := &q.Estimates[i]
		switch {
		case stated[i], f.Outcome == throttle.Failed:
			continue
		case f.Outcome == throttle.Throttled && usedUp:
			e.Probe = e.Probe && n <= e.LastSent // another limit is used up, so the rejection shows nothing about e
			continue
		case f.Cause == throttle.CauseRetryNow && e.Explains(n, q.firsts.tells(f.Repeated), q.trip.Typical(), now):
			explained = true
		}
		if e.CountUnstated(n, f.Outcome == throttle.Accepted, now, &q.InFlight) {
			q.remove(i)
		}
	}
	return explained
}

// Explains reports whether nothing is left of one of limits.
func Explains(limits []throttle.RemoteLimit) bool {
	return slices.ContainsFunc(limits, func(l throttle.RemoteLimit) bool { return statedlimit.CountsRequests(l) && l.Remaining <= 0 })
}
