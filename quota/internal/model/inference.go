package model

import (
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/throttle"
)

// An Inference is what is estimated of a quota whose server rejects requests without stating its
// limits. A quota has none until the first response that may be such a rejection, and drops it after
// forgetAfter successes in a row in which nothing was estimated.
//
// Responses are either bare rejections, 429s that state nothing, or suspected causes: 503, 403,
// closed connections and timeouts, which healthy servers have, too.
//
//	                  bare rejections                           suspected causes
//	below evidence    cut: no claim for one round trip, then    no limit
//	                  half of the claims in flight
//	with evidence     stop: a hold, which ends with a probe     loop, on trial
//	after the stop    window or, if there is none, loop
//
// Rejections that state Retry-After are evidence, too. Then the stated hold is the stop. So are requests
// that hang, see hanging.go.
//
// Firewalls ban a client that sends too fast with 403s, and a request during a ban may begin it again.
// So 403s of routes that have just succeeded begin a stop, too, if the host is not known yet or if all
// responses of a trial are 403s. As a 403 may as well be a missing permission, that stop is bounded: if
// the probe after maxSuspectedStop is rejected with a 403, there is no limit, and nothing is estimated from
// suspected causes for learnedlimit.NoEstimate.
type Inference struct {
	Evidence learnedlimit.Evidence
	accepted learnedlimit.AcceptedRate
	Cut      concurrency.Cut
	Loop     learnedlimit.RateLoop
	Window   learnedlimit.Window

	Forbidden bool // 403s, not bare rejections, began the latest stop, and count as rejections of the window

	// Of the present stop or stated hold:
	beforeStop  learnedlimit.AcceptedSpan // requests accepted before it; zero since: there is none
	statedHold  time.Duration             // longest wait that the server stated for it; 0: none
	stopPending bool                      // there is evidence: the next rejection that is observed begins a stop
	loopPending bool                      // when the stop ends, a window or a loop begins

	nextEstimate   [2]time.Time // nothing is estimated before, by causeClass: a loop has failed
	successesInRow int          // successes since the latest possible rejection
	hanging        bool         // requests that hang count as rejections, in the present stop and loop
	lastHanging    uint64       // latest claim that hung then
}

// causeClass returns the index of c in Inference.nextEstimate: 0 for bare rejections, 1 for suspected
// causes.
func causeClass(c throttle.Cause) int {
	if c == throttle.CauseUnstated {
		return 0
	}
	return 1
}

const (
	forgetAfter   = 50 // successes in a row, after which the inference is dropped
	minRejections = 4  // fewer responses are no evidence of any kind, see evidence

	maxSuspectedStop = 14 * time.Second // time after which a stop that 403s began ends if the probe is a 403, too

	minRoundTrip     = time.Millisecond       // shortest Quota.roundTrip
	maxRoundTrip     = 250 * time.Millisecond // longest Quota.roundTrip
	unknownRoundTrip = 50 * time.Millisecond  // Quota.roundTrip before the first response
)

// Limits reports whether a rate or a window is estimated, or a window is declared.
func (inf *Inference) Limits() bool {
	return inf.Loop.Cause != throttle.CauseUnknown || inf.Window.Limit > 0
}

// stopCause returns the cause of the rejections that began the latest stop.
func (inf *Inference) stopCause() throttle.Cause {
	if inf.Forbidden {
		return throttle.CauseForbidden
	}
	return throttle.CauseUnstated
}

// roundTrip returns the typical time from a claim to its response, within the bounds that estimates
// use.
func (q *Quota) roundTrip() time.Duration {
	if q.Slow.Typical == 0 {
		return unknownRoundTrip
	}
	return min(max(q.Slow.Typical, minRoundTrip), maxRoundTrip)
}

// infer returns the inference of q, a new one if there is none; nil if there is no memory for it.
// before is what was accepted before; if it is zero, q has counted that.
func (q *Quota) infer(before learnedlimit.AcceptedSpan, now time.Time) *Inference {
	if q.Inference != nil || q.Dropped || !q.Account.Memory.Reserve(inferenceBytes) {
		return q.Inference
	}
	inf := new(Inference)
	if before.Since.IsZero() {
		before = q.Span
	}
	if before.N > 0 {
		took := max(now.Sub(before.Since), 0)
		inf.Evidence.AddAccepted(before.N, took, now)
		inf.accepted.AddEvenly(before.N, took, now)
	}
	inf.Evidence.Total = max(inf.Evidence.Total, q.SlowStart.Successes)
	q.Inference, q.Span = inf, before
	return inf
}

// Suspect adds f, a possible rejection that states nothing, to the evidence. before is what was
// accepted before, as far as q has not counted it, and granted reports whether q granted the claim.
// suspect sets f.Outcome to Throttled while the loop explains f, and reports whether there is
// evidence for a stop.
func (q *Quota) Suspect(f *throttle.Feedback, before learnedlimit.AcceptedSpan, granted bool, now time.Time) (stop bool) {
	inf := q.infer(before, now)
	if inf == nil {
		return false
	}
	inf.successesInRow = 0
	if !granted && (inf.Loop.On() || q.Hold.Active) {
		return false // the request was sent before the loop or the stop began
	}
	cause := f.Cause
	if cause == throttle.CauseRetryNow {
		cause = throttle.CauseUnstated
	}
	if cause != throttle.CauseForbidden || f.RetryOnce { // otherwise a permission is probably missing
		inf.Evidence.Add(cause, now)
	}
	bare := cause == throttle.CauseUnstated
	switch limits := inf.Limits(); {
	case limits && inf.Loop.On():
		if inf.Loop.Cause == cause || inf.hanging {
			f.Outcome = throttle.Throttled
		}
	case cause == throttle.CauseForbidden && inf.Forbidden && (q.Hold.Active && q.Hold.Estimated || limits):
		f.Outcome = throttle.Throttled
	case inf.Evidence.N < minRejections, q.Hold.Active, bare && limits && granted, now.Before(inf.nextEstimate[causeClass(cause)]):
	case bare && inf.Evidence.ImpliesLimit(f.Cause == throttle.CauseRetryNow, q.roundTrip(), now):
		inf.Evidence.Restart()
		inf.stopPending, inf.Forbidden = true, false
		return true
	case f.RetryOnce && !limits && q.SlowStart.Successes < concurrency.KnownAfter && inf.Evidence.SuggestsBan(now):
		inf.Evidence.Restart()
		inf.stopPending, inf.Forbidden = true, true
		f.Outcome = throttle.Throttled
		return true
	case !bare && !limits: // only the loop may limit requests during a trial
		if share, ok := inf.Evidence.SuggestsLimit(f.Cause, q.roundTrip(), now); ok {
			inf.Evidence.Restart()
			inf.Loop.BeginTrial(f.Cause, share, inf.accepted.Latest(now), inf.accepted.Highest(now)/2, q.roundTrip(), q.InFlight.Sent, now)
			f.Outcome = throttle.Throttled
		}
	}
	if !granted && f.Cause == throttle.CauseUnstated { // no rejected claim will be observed
		q.cutConcurrency(now)
	}
	return false
}

// SucceededUngranted applies the success of a request that q did not grant.
func (q *Quota) SucceededUngranted(now time.Time) {
	if inf := q.Inference; inf != nil {
		inf.Evidence.Add(learnedlimit.CauseSuccess, now)
		inf.accepted.Add(1, now)
	}
}

// Declare gives q, which is new, the limit l that is declared for its host, as a learned window. If
// there is no memory for it, q has no declared limit.
func (q *Quota) Declare(l throttle.Limit) {
	if !q.Account.Memory.Reserve(inferenceBytes) {
		return
	}
	limit, length := l.Count, l.Per
	if l.Burst > 0 && l.Burst < l.Count {
		limit, length = l.Burst, time.Duration(ticks.MulDivUp(int64(l.Per), l.Burst, l.Count))
	}
	q.Inference = &Inference{Window: learnedlimit.NewDeclaredWindow(limit, length)}
}

// cutConcurrency begins a concurrency.Cut. By Little's law, requests to an unlimited endpoint are in flight,
// too, although they are not claims.
func (q *Quota) cutConcurrency(now time.Time) {
	inFlight := max(float64(q.InFlight.Open), q.Inference.accepted.Latest(now)*q.roundTrip().Seconds())
	q.Inference.Cut.Begin(inFlight, q.roundTrip(), now)
}

// RejectedElsewhere applies the rejection f of a request that q did not grant. accepted is what was accepted
// before. The first rejection begins a hold. The others until its end are of the same burst and only extend it.
func (q *Quota) RejectedElsewhere(f *throttle.Feedback, accepted learnedlimit.AcceptedSpan, now time.Time) {
	n := uint64(0)
	if !q.Hold.Active && !now.Before(q.Hold.Until) {
		n = q.Hold.LastSent + 1 // stands for a claim that was sent after the latest hold
		q.InFlight.Sent = max(q.InFlight.Sent, n)
		if accepted.N > 0 {
			q.Span = accepted
		}
	}
	usedUp := Explains(f.RemoteLimits)
	if IsEstimated[f.Cause] && !usedUp {
		q.infer(accepted, now)
		q.stop(n, now)
		return
	}
	q.throttled(n, f, usedUp, now)
}

// rejectedUnstated applies the rejection of claim n for a cause that is estimated.
func (q *Quota) rejectedUnstated(n uint64, cause throttle.Cause, now time.Time) {
	inf := q.infer(learnedlimit.AcceptedSpan{}, now)
	if inf == nil {
		return
	}
	bare := cause == throttle.CauseUnstated
	stops := bare || cause == throttle.CauseForbidden && inf.Forbidden
	probe := q.Hold.Active && n > q.Hold.LastSent
	switch {
	case stops && (inf.stopPending || probe):
		inf.Forbidden = !bare // a stop whose probe gets a 429 is not bounded
		q.stop(n, now)
	case q.Hold.Active:
	case stops && inf.Window.On():
		q.updateWindow(inf.Window.Rejected(n, now), n, now)
	case inf.Loop.On():
		if inf.Loop.Cause == cause || inf.hanging {
			q.updateLoop(n, true, now)
		}
	case bare:
		q.cutConcurrency(now)
	}
}

// rejectedWithHold applies a rejection of claim n that began or extended a hold, and that no stated
// limit explains. retryAfter is the wait that it states; 0: none. One such rejection shows nothing
// about the rate that the server accepts, several do.
func (q *Quota) rejectedWithHold(n uint64, retryAfter time.Duration, now time.Time) {
	if !q.Account.Full {
		return
	}
	inf := q.infer(learnedlimit.AcceptedSpan{}, now)
	if inf == nil {
		return
	}
	inf.successesInRow = 0
	switch l := &inf.Loop; {
	case inf.Window.On():
		q.updateWindow(inf.Window.Rejected(n, now), n, now)
		return
	case l.On():
		if l.Cause != throttle.CauseUnstated || !l.Counts(n, now) {
			return
		}
		if effect := l.AddStatedWait(retryAfter, &inf.accepted, q.roundTrip(), q.InFlight.Sent, now); effect == learnedlimit.AbandonLoop || effect == learnedlimit.EndLoop {
			q.dropLoop(effect == learnedlimit.AbandonLoop, now)
		}
		return
	}
	inf.Evidence.Add(throttle.CauseUnstated, now)
	inf.statedHold = max(inf.statedHold, retryAfter)
	if q.Hold.Rejections <= 1 { // no probe was rejected
		inf.beforeStop = q.Span
		inf.beforeStop.Until = q.Hold.RejectedAt
	}
	if !inf.loopPending && !now.Before(inf.nextEstimate[causeClass(throttle.CauseUnstated)]) && inf.Evidence.StatedImplyLimit(now) {
		inf.Evidence.Restart()
		inf.loopPending, inf.Forbidden = true, false
	}
}

// succeeded applies the successful response to claim n.
func (q *Quota) succeeded(n uint64, now time.Time) {
	inf := q.Inference
	inf.Evidence.Add(learnedlimit.CauseSuccess, now)
	inf.accepted.Add(1, now)
	if q.Hold.Active && n <= q.Hold.LastSent {
		inf.beforeStop.N++ // it was in flight when the stop or hold began
	}
	if inf.Cut.MaxInFlight > 0 {
		inf.Cut.Succeeded()
	}
	switch {
	case !inf.Limits():
	case inf.Window.On():
		q.updateWindow(inf.Window.Succeeded(n, q.LastGranted), n, now)
	default:
		inf.Loop.Span.N++
		q.updateLoop(n, false, now)
	}
	inf.successesInRow++
	estimating := inf.Limits() || inf.loopPending || inf.Cut.MaxInFlight > 0 || q.Hold.Active
	if inf.successesInRow >= forgetAfter && !estimating && !now.Before(ticks.Later(inf.nextEstimate[0], inf.nextEstimate[1])) {
		q.Inference = nil
		q.Account.Memory.Release(inferenceBytes)
	}
}

// updateLoop applies the response to claim n to the loop, if it shows the effect of the present
// rate. rejected is set if it is a rejection, or a failure of the cause of the loop.
func (q *Quota) updateLoop(n uint64, rejected bool, now time.Time) {
	inf, l := q.Inference, &q.Inference.Loop
	if !l.Counts(n, now) {
		return
	}
	effect := l.AddResponse(rejected, &inf.accepted, q.roundTrip(), q.InFlight.Sent, now)
	switch effect {
	case learnedlimit.StopSending:
		inf.Forbidden = l.Cause == throttle.CauseForbidden
		if l.Trial.Active {
			*l = learnedlimit.RateLoop{}
		}
		q.stop(n, now)
	case learnedlimit.AbandonLoop, learnedlimit.EndLoop:
		q.dropLoop(effect == learnedlimit.AbandonLoop, now)
	}
}

// dropLoop ends the loop. If it has failed, because lower rates do not make rejections rarer,
// nothing is estimated from causes of its class for the time learnedlimit.NoEstimate.
func (q *Quota) dropLoop(failed bool, now time.Time) {
	inf := q.Inference
	if failed {
		inf.nextEstimate[causeClass(inf.Loop.Cause)] = now.Add(learnedlimit.NoEstimate)
		if inf.hanging {
			inf.nextEstimate[causeClass(throttle.CauseTimeout)] = now.Add(learnedlimit.NoEstimate)
		}
	}
	inf.Loop, inf.loopPending, inf.hanging = learnedlimit.RateLoop{}, false, false
	inf.Evidence.Restart()
}

// updateWindow applies v, what the response to claim n shows about the learned window. If there is
// no window, the loop begins with the rate that the responses have shown.
func (q *Quota) updateWindow(v learnedlimit.Verdict, n uint64, now time.Time) {
	if v == learnedlimit.FitsWindow {
		return
	}
	inf := q.Inference
	w := inf.Window
	inf.Window = learnedlimit.Window{}
	switch v {
	case learnedlimit.FitsBucket, learnedlimit.BeyondWindow:
		inf.Loop = w.RateLoop(v, inf.stopCause(), q.InFlight.Sent, now)
	case learnedlimit.FitsNothing: // the next window or loop begins with what this one has shown
		q.Span = learnedlimit.AcceptedSpan{Since: w.Start, N: w.Accepted}
		q.stop(n, now)
	}
}

// IsEstimated holds the causes of limits that can only be estimated, because the responses state neither a
// limit nor a wait.
var IsEstimated = [math.MaxUint8 + 1]bool{
	throttle.CauseUnstated: true, throttle.CauseRetryNow: true, throttle.CauseUnavailable: true,
	throttle.CauseForbidden: true, throttle.CauseDropped: true, throttle.CauseTimeout: true,
}
