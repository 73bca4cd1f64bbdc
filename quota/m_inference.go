package quota

import (
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/hold"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// An inference is what is estimated of a quota whose server rejects requests without stating its
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
//
// The fields are guarded by quota.mu.
type inference struct {
	evidence learnedlimit.Evidence
	accepted learnedlimit.AcceptedRate
	cut      concurrency.Cut
	loop     learnedlimit.RateLoop
	window   learnedlimit.Window

	forbidden bool // 403s, not bare rejections, began the latest stop, and count as rejections of the window

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

// causeClass returns the index of c in inference.nextEstimate: 0 for bare rejections, 1 for suspected
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

	minRoundTrip     = time.Millisecond       // shortest quota.roundTrip
	maxRoundTrip     = 250 * time.Millisecond // longest quota.roundTrip
	unknownRoundTrip = 50 * time.Millisecond  // quota.roundTrip before the first response
)

// limits reports whether a rate or a window is estimated, or a window is declared.
func (inf *inference) limits() bool {
	return inf.loop.Cause != throttle.CauseUnknown || inf.window.Limit > 0
}

// stopCause returns the cause of the rejections that began the latest stop.
func (inf *inference) stopCause() throttle.Cause {
	if inf.forbidden {
		return throttle.CauseForbidden
	}
	return throttle.CauseUnstated
}

// roundTrip returns the typical time from a claim to its response, within the bounds that estimates
// use.
func (q *modelQuota) roundTrip() time.Duration {
	if q.slow.Typical == 0 {
		return unknownRoundTrip
	}
	return min(max(q.slow.Typical, minRoundTrip), maxRoundTrip)
}

// infer returns the inference of q, a new one if there is none; nil if there is no memory for it.
// before is what was accepted before; if it is zero, q has counted that.
func (q *modelQuota) infer(before learnedlimit.AcceptedSpan, now time.Time) *inference {
	if q.inference != nil || q.dropped || !q.account.memory.Reserve(inferenceBytes) {
		return q.inference
	}
	inf := new(inference)
	if before.Since.IsZero() {
		before = q.span
	}
	if before.N > 0 {
		took := max(now.Sub(before.Since), 0)
		inf.evidence.AddAccepted(before.N, took, now)
		inf.accepted.AddEvenly(before.N, took, now)
	}
	inf.evidence.Total = max(inf.evidence.Total, q.slowStart.Successes)
	q.inference, q.span = inf, before
	return inf
}

// suspect adds f, a possible rejection that states nothing, to the evidence. before is what was
// accepted before, as far as q has not counted it, and granted reports whether q granted the claim.
// suspect sets f.Outcome to Throttled while the loop explains f, and reports whether there is
// evidence for a stop.
func (q *modelQuota) suspect(f *throttle.Feedback, before learnedlimit.AcceptedSpan, granted bool, now time.Time) (stop bool) {
	inf := q.infer(before, now)
	if inf == nil {
		return false
	}
	inf.successesInRow = 0
	if !granted && (inf.loop.On() || q.hold.Active) {
		return false // the request was sent before the loop or the stop began
	}
	cause := f.Cause
	if cause == throttle.CauseRetryNow {
		cause = throttle.CauseUnstated
	}
	if cause != throttle.CauseForbidden || f.RetryOnce { // otherwise a permission is probably missing
		inf.evidence.Add(cause, now)
	}
	bare := cause == throttle.CauseUnstated
	switch limits := inf.limits(); {
	case limits && inf.loop.On():
		if inf.loop.Cause == cause || inf.hanging {
			f.Outcome = throttle.Throttled
		}
	case cause == throttle.CauseForbidden && inf.forbidden && (q.hold.Active && q.hold.Estimated || limits):
		f.Outcome = throttle.Throttled
	case inf.evidence.N < minRejections, q.hold.Active, bare && limits && granted, now.Before(inf.nextEstimate[causeClass(cause)]):
	case bare && inf.evidence.ImpliesLimit(f.Cause == throttle.CauseRetryNow, q.roundTrip(), now):
		inf.evidence.Restart()
		inf.stopPending, inf.forbidden = true, false
		return true
	case f.RetryOnce && !limits && q.slowStart.Successes < concurrency.KnownAfter && inf.evidence.SuggestsBan(now):
		inf.evidence.Restart()
		inf.stopPending, inf.forbidden = true, true
		f.Outcome = throttle.Throttled
		return true
	case !bare && !limits: // only the loop may limit requests during a trial
		if share, ok := inf.evidence.SuggestsLimit(f.Cause, q.roundTrip(), now); ok {
			inf.evidence.Restart()
			inf.loop.BeginTrial(f.Cause, share, inf.accepted.Latest(now), inf.accepted.Highest(now)/2, q.roundTrip(), q.inFlight.Sent, now)
			f.Outcome = throttle.Throttled
		}
	}
	if !granted && f.Cause == throttle.CauseUnstated { // no rejected claim will be observed
		q.cutConcurrency(now)
	}
	return false
}

// succeededUngranted applies the success of a request that q did not grant.
func (q *modelQuota) succeededUngranted(now time.Time) {
	if inf := q.inference; inf != nil {
		inf.evidence.Add(learnedlimit.CauseSuccess, now)
		inf.accepted.Add(1, now)
	}
}

// declare gives q, which is new, the limit l that is declared for its host, as a learned window. If
// there is no memory for it, q has no declared limit.
func (q *modelQuota) declare(l throttle.Limit) {
	if !q.account.memory.Reserve(inferenceBytes) {
		return
	}
	limit, length := l.Count, l.Per
	if l.Burst > 0 && l.Burst < l.Count {
		limit, length = l.Burst, time.Duration(ticks.MulDivUp(int64(l.Per), l.Burst, l.Count))
	}
	q.inference = &inference{window: learnedlimit.NewDeclaredWindow(limit, length)}
}

// cutConcurrency begins a concurrency.Cut. By Little's law, requests to an unlimited endpoint are in flight,
// too, although they are not claims.
func (q *modelQuota) cutConcurrency(now time.Time) {
	inFlight := max(float64(q.inFlight.Open), q.inference.accepted.Latest(now)*q.roundTrip().Seconds())
	q.inference.cut.Begin(inFlight, q.roundTrip(), now)
}

// rejectedElsewhere applies the rejection f of a request that q did not grant. accepted is what was accepted
// before. The first rejection begins a hold. The others until its end are of the same burst and only extend it.
func (q *modelQuota) rejectedElsewhere(f *throttle.Feedback, accepted learnedlimit.AcceptedSpan, now time.Time) {
	n := uint64(0)
	if !q.hold.Active && !now.Before(q.hold.Until) {
		n = q.hold.LastSent + 1 // stands for a claim that was sent after the latest hold
		q.inFlight.Sent = max(q.inFlight.Sent, n)
		if accepted.N > 0 {
			q.span = accepted
		}
	}
	usedUp := explains(f.RemoteLimits)
	if isEstimated[f.Cause] && !usedUp {
		q.infer(accepted, now)
		q.stop(n, now)
		return
	}
	q.throttled(n, f, usedUp, now)
}

// addEvidence adds n bare rejections of requests of another process to the evidence, and reports whether it
// suffices for a stop. before is what was accepted before, as far as q has not counted it. During a rate
// loop, all processes together have reached the limit, so the rate does not grow for a while.
func (q *modelQuota) addEvidence(n int, before learnedlimit.AcceptedSpan, now time.Time) (stop bool) {
	if !q.account.Full {
		return false
	}
	if q.lastGranted.After(before.Since) { // q has counted what was accepted
		before = learnedlimit.AcceptedSpan{}
	}
	inf := q.infer(before, now)
	if inf == nil {
		return false
	}
	inf.successesInRow = 0
	if l := &inf.loop; l.On() || q.hold.Active {
		l.RejectedElsewhere()
		return false
	}
	for range min(n, 8) {
		inf.evidence.Add(throttle.CauseUnstated, now)
	}
	if !inf.evidence.ImpliesLimit(false, q.roundTrip(), now) {
		q.cutConcurrency(now)
		return false
	}
	inf.evidence.Restart()
	return true
}

// rejectedUnstated applies the rejection of claim n for a cause that is estimated.
func (q *modelQuota) rejectedUnstated(n uint64, cause throttle.Cause, now time.Time) {
	inf := q.infer(learnedlimit.AcceptedSpan{}, now)
	if inf == nil {
		return
	}
	bare := cause == throttle.CauseUnstated
	stops := bare || cause == throttle.CauseForbidden && inf.forbidden
	probe := q.hold.Active && n > q.hold.LastSent
	switch {
	case stops && (inf.stopPending || probe):
		inf.forbidden = !bare // a stop whose probe gets a 429 is not bounded
		q.stop(n, now)
	case q.hold.Active:
	case stops && inf.window.On():
		q.updateWindow(inf.window.Rejected(n, now), n, now)
	case inf.loop.On():
		if inf.loop.Cause == cause || inf.hanging {
			q.updateLoop(n, true, now)
		}
	case bare:
		q.cutConcurrency(now)
	}
}

// rejectedWithHold applies a rejection of claim n that began or extended a hold, and that no stated
// limit explains. retryAfter is the wait that it states; 0: none. One such rejection shows nothing
// about the rate that the server accepts, several do.
func (q *modelQuota) rejectedWithHold(n uint64, retryAfter time.Duration, now time.Time) {
	if !q.account.Full {
		return
	}
	inf := q.infer(learnedlimit.AcceptedSpan{}, now)
	if inf == nil {
		return
	}
	inf.successesInRow = 0
	switch l := &inf.loop; {
	case inf.window.On():
		q.updateWindow(inf.window.Rejected(n, now), n, now)
		return
	case l.On():
		if l.Cause != throttle.CauseUnstated || !l.Counts(n, now) {
			return
		}
		if effect := l.AddStatedWait(retryAfter, &inf.accepted, q.roundTrip(), q.inFlight.Sent, now); effect == learnedlimit.AbandonLoop || effect == learnedlimit.EndLoop {
			q.dropLoop(effect == learnedlimit.AbandonLoop, now)
		}
		return
	}
	inf.evidence.Add(throttle.CauseUnstated, now)
	inf.statedHold = max(inf.statedHold, retryAfter)
	if q.hold.Rejections <= 1 { // no probe was rejected
		inf.beforeStop = q.span
		inf.beforeStop.Until = q.hold.RejectedAt
	}
	if !inf.loopPending && !now.Before(inf.nextEstimate[causeClass(throttle.CauseUnstated)]) && inf.evidence.StatedImplyLimit(now) {
		inf.evidence.Restart()
		inf.loopPending, inf.forbidden = true, false
	}
}

// succeeded applies the successful response to claim n.
func (q *modelQuota) succeeded(n uint64, now time.Time) {
	inf := q.inference
	inf.evidence.Add(learnedlimit.CauseSuccess, now)
	inf.accepted.Add(1, now)
	if q.hold.Active && n <= q.hold.LastSent {
		inf.beforeStop.N++ // it was in flight when the stop or hold began
	}
	if inf.cut.MaxInFlight > 0 {
		inf.cut.Succeeded()
	}
	switch {
	case !inf.limits():
	case inf.window.On():
		q.updateWindow(inf.window.Succeeded(n, q.lastGranted), n, now)
	default:
		inf.loop.Span.N++
		q.updateLoop(n, false, now)
	}
	inf.successesInRow++
	estimating := inf.limits() || inf.loopPending || inf.cut.MaxInFlight > 0 || q.hold.Active
	if inf.successesInRow >= forgetAfter && !estimating && !now.Before(ticks.Later(inf.nextEstimate[0], inf.nextEstimate[1])) {
		q.inference = nil
		q.account.memory.Release(inferenceBytes)
	}
}

// stop begins or extends a stop: a hold that the server did not state, because claim n was rejected.
// It replaces a cut. If no loop is on, one begins when the stop ends.
func (q *modelQuota) stop(n uint64, now time.Time) {
	inf := q.inference
	if inf != nil && inf.forbidden && q.hold.Active && q.hold.Estimated && now.Sub(q.hold.Since) >= maxSuspectedStop {
		q.abandonStop(now)
		return
	}
	if inf != nil && !q.hold.Active {
		inf.beforeStop, inf.loopPending = q.span, !inf.loop.On()
		inf.beforeStop.Until = now
	}
	r := q.rejectionOf(0, now)
	r.Estimated, r.Pause = true, q.pauseOfStop(now)
	q.hold.Rejected(n, now, r)
	if inf != nil {
		inf.stopPending, inf.cut = false, concurrency.Cut{}
	}
}

// abandonStop ends a stop that 403s began although the server does not accept requests: these are
// rejected for another reason. As after each hold, slow start bounds the requests that have waited.
func (q *modelQuota) abandonStop(now time.Time) {
	inf := q.inference
	q.slowStart.Bound(max(q.hold.InFlight, concurrency.KnownBound(q.account.InitialConcurrency)), concurrency.KnownAfter)
	q.hold = hold.Hold{LastSent: q.inFlight.Sent, Abandoned: true}
	inf.window, inf.loop.Cause = learnedlimit.Window{}, throttle.CauseForbidden
	q.dropLoop(true, now)
}

// probeAfter are the times since the first accepted request at which a stop may be probed: windows
// of these usual lengths end then, if they began with that request.
var probeAfter = []time.Duration{
	time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute,
}

// forbiddenPauses are the times between the probes of a stop that 403s began, if no earlier ban is
// known: there are few probes, because each may begin the ban again. The last one is the default of
// DOSBlockingPeriod of mod_evasive.
var forbiddenPauses = []time.Duration{time.Second, 4 * time.Second, 10 * time.Second}

// pauseOfStop returns the time until the next probe of a stop; 0: the default of hold. It is the
// pause that ended the latest stop, if that was longer than hold.BasePause, and otherwise the time until
// the next element of probeAfter, with a random delay.
func (q *modelQuota) pauseOfStop(now time.Time) time.Duration {
	h, a := &q.hold, q.account
	late := time.Duration(a.Random() * float64(hold.MaxLate))
	switch elapsed := now.Sub(h.Since); {
	case !h.Active && h.LastPause > hold.BasePause:
		return min(h.LastPause, hold.MaxPause) + late
	case h.Active && h.LastPause > hold.BasePause && h.Rejections == 1 && h.LastTotal > elapsed+hold.BasePause:
		return min(h.LastTotal-elapsed, hold.MaxPause) + late
	}
	if q.inference != nil && q.inference.forbidden {
		n := h.Rejections // of earlier probes: those of an ended stop do not count
		if !h.Active {
			n = 0
		}
		return forbiddenPauses[min(n, len(forbiddenPauses)-1)] + late
	}
	if q.inference == nil || q.inference.beforeStop.Since.IsZero() || q.inference.loop.On() {
		return 0
	}
	least := hold.BasePause / 4 // since the stop has just begun
	if !h.Active && q.inference.hanging {
		least = hold.BasePause // a pause of a healthy server mostly ends before, and its responses show that
	}
	for _, length := range probeAfter {
		wait := q.inference.beforeStop.Since.Add(length).Sub(now)
		if wait < least {
			continue
		}
		wait += statedlimit.OpeningDelay + time.Duration(a.Random()*float64(min(length/16, hold.MaxLate)))
		if length <= hold.BasePause {
			return min(wait, hold.BasePause)
		}
		return wait
	}
	return 0
}

// released updates q because a hold has ended: its probe, the latest claim, was accepted. If there
// was evidence, the window or the loop begins. Otherwise slow start bounds the requests in flight.
func (q *modelQuota) released(now time.Time) {
	inf := q.inference
	if inf == nil {
		return
	}
	switch h := &q.hold; {
	case inf.loop.On():
	case inf.window.On():
		inf.window.Released(q.inFlight.Sent, q.lastGranted)
	case inf.loopPending && inf.beforeStop.N > 0: // a server that accepted nothing has shown no rate
		rejectedProbe := time.Time{} // when the latest rejected probe was; zero: there was none
		if h.RejectedAt.After(inf.beforeStop.Until) {
			rejectedProbe = h.RejectedAt
		}
		if !inf.hanging && q.lastGranted.Before(h.Until.Add(hold.BasePause)) { // a later probe does not show how long the stop had to be
			inf.window = learnedlimit.NewWindow(inf.beforeStop, rejectedProbe, q.lastGranted, q.inFlight.Sent)
		}
		if !inf.window.On() {
			inf.loop.BeginAfterStop(inf.stopCause(), inf.hanging, inf.beforeStop, h.RejectedAt, q.lastGranted, now, inf.accepted.Highest(now)/2, q.inFlight.Sent)
			break
		}
		inf.cut = concurrency.Cut{}
		inf.window.DescribeStop(inf.statedHold, inf.forbidden, rejectedProbe.IsZero())
	}
	if !inf.loopPending {
		q.span = learnedlimit.AcceptedSpan{Since: q.lastGranted} // a window of the server may have begun with the probe
	}
	if !inf.loop.On() && !inf.window.On() {
		inf.hanging = false
		q.slowStart.Bound(max(q.hold.InFlight, concurrency.KnownBound(q.account.InitialConcurrency)), concurrency.KnownAfter)
	}
	inf.loopPending, inf.beforeStop, inf.statedHold = false, learnedlimit.AcceptedSpan{}, 0
	inf.evidence.Restart()
}

// updateLoop applies the response to claim n to the loop, if it shows the effect of the present
// rate. rejected is set if it is a rejection, or a failure of the cause of the loop.
func (q *modelQuota) updateLoop(n uint64, rejected bool, now time.Time) {
	inf, l := q.inference, &q.inference.loop
	if !l.Counts(n, now) {
		return
	}
	effect := l.AddResponse(rejected, &inf.accepted, q.roundTrip(), q.inFlight.Sent, now)
	switch effect {
	case learnedlimit.StopSending:
		inf.forbidden = l.Cause == throttle.CauseForbidden
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
func (q *modelQuota) dropLoop(failed bool, now time.Time) {
	inf := q.inference
	if failed {
		inf.nextEstimate[causeClass(inf.loop.Cause)] = now.Add(learnedlimit.NoEstimate)
		if inf.hanging {
			inf.nextEstimate[causeClass(throttle.CauseTimeout)] = now.Add(learnedlimit.NoEstimate)
		}
	}
	inf.loop, inf.loopPending, inf.hanging = learnedlimit.RateLoop{}, false, false
	inf.evidence.Restart()
}

// updateWindow applies v, what the response to claim n shows about the learned window. If there is
// no window, the loop begins with the rate that the responses have shown.
func (q *modelQuota) updateWindow(v learnedlimit.Verdict, n uint64, now time.Time) {
	if v == learnedlimit.FitsWindow {
		return
	}
	inf := q.inference
	w := inf.window
	inf.window = learnedlimit.Window{}
	switch v {
	case learnedlimit.FitsBucket, learnedlimit.BeyondWindow:
		inf.loop = w.RateLoop(v, inf.stopCause(), q.inFlight.Sent, now)
	case learnedlimit.FitsNothing: // the next window or loop begins with what this one has shown
		q.span = learnedlimit.AcceptedSpan{Since: w.Start, N: w.Accepted}
		q.stop(n, now)
	}
}

// isEstimated holds the causes of limits that can only be estimated, because the responses state neither a
// limit nor a wait.
var isEstimated = [math.MaxUint8 + 1]bool{
	throttle.CauseUnstated: true, throttle.CauseRetryNow: true, throttle.CauseUnavailable: true,
	throttle.CauseForbidden: true, throttle.CauseDropped: true, throttle.CauseTimeout: true,
}
