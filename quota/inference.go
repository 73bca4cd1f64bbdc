package quota

import (
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
)

// An inference holds what is estimated of a quota whose server does not state its
// limits. A quota has none until the first response that may be a rejection and states
// nothing, and loses it when 50 responses in a row have succeeded since.
//
//	below evidence     one round trip without new requests after a bare 429, then half as many in flight
//	evidence           rejections: no requests until one probe is accepted, then the rate loop
//	                   suspected causes: the rate loop with a trial, never a stop
type inference struct {
	evidence evidence
	accepted acceptedRate
	cut      concurrencyCut
	loop     rateLoop
	window   learnedWindow

	beforeStop     acceptedSpan  // accepted before the present stop or hold
	statedHold     time.Duration // that the server stated for it; 0: none
	pending        bool          // the loop begins when that ends
	stopNext       bool          // there is evidence: the next rejection that is observed stops the quota
	blockedUntil   [2]time.Time  // a loop has failed: there is no other of its class before this, see causeClass
	successesInRow int           // responses that succeeded since the last that did not
}

// causeClass returns the index in estimator.none of a cause: rejections, and what is only
// suspected to be one.
func causeClass(c throttle.Cause) int {
	if c == throttle.CauseUnstated {
		return 0
	}
	return 1
}

const forgetAfter = 50 // successful responses in a row, and the estimator is dropped

// A concurrencyCut bounds the requests in flight after a bare 429 that is not evidence, until
// cutEndsAfter responses in a row are successful.
type concurrencyCut struct {
	until       time.Time // no requests are sent before
	maxInFlight int64     // requests in flight; 0: not bounded
	successes   int       // responses in a row that succeeded
}

const (
	minInFlight  = 4 // at any time, also after a bare 429
	cutEndsAfter = 8 // successful responses in a row

	minRoundTrip     = time.Millisecond
	maxRoundTrip     = 250 * time.Millisecond
	unknownRoundTrip = 50 * time.Millisecond
)

// roundTrip returns how long the server usually takes to respond, as far as estimates
// are concerned.
func (q *quota) roundTrip() time.Duration {
	if q.slow.typical == 0 {
		return unknownRoundTrip
	}
	return min(max(q.slow.typical, minRoundTrip), maxRoundTrip)
}

// isEstimated reports whether a limit can only be estimated from responses of cause c.
func isEstimated(c throttle.Cause) bool {
	switch c {
	case throttle.CauseUnstated, throttle.CauseRetryNow, throttle.CauseUnavailable, throttle.CauseForbidden, throttle.CauseDropped, throttle.CauseTimeout:
		return true
	}
	return false
}

// infer returns the estimator of b, which begins with what was accepted before:
// before, or if that is zero, what b has counted. It is nil if the host has used up its
// memory: then nothing is estimated of b.
func (q *quota) infer(before acceptedSpan, now time.Time) *inference {
	if q.inference != nil || q.dropped || !q.endpoint.memory.reserve(inferenceBytes) {
		return q.inference
	}
	q.inference = new(inference)
	if before.since.IsZero() {
		before = q.span
	}
	if before.n > 0 {
		span := max(now.Sub(before.since), 0)
		q.inference.evidence.credit(before.n, span, now)
		q.inference.accepted.spread(before.n, span, now)
	}
	q.inference.evidence.total = max(q.inference.evidence.total, q.start.successes)
	q.span = before
	return q.inference
}

// suspect takes in a response that may be a rejection and states nothing. before is
// what was accepted before it, as far as it was not counted by b, and granted reports
// whether b had granted the request. It sets f.Outcome to Throttled while an estimate
// explains the response, and reports whether there is evidence to stop.
func (q *quota) suspect(f *throttle.Feedback, before acceptedSpan, granted bool) (stop bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.record(q.view())
	now := q.now(f.Now)
	inf := q.infer(before, now)
	if inf == nil {
		return false
	}
	inf.successesInRow = 0
	q.start.pause()
	if !granted && (inf.loop.on() || q.hold.active) {
		return false // it was sent before the loop or the stop began
	}
	cause := f.Cause
	if cause == throttle.CauseRetryNow {
		cause = throttle.CauseUnstated
	}
	inf.evidence.add(cause, now)
	bare := cause == throttle.CauseUnstated
	switch {
	case inf.loop.on():
		if inf.loop.cause == cause {
			f.Outcome = throttle.Throttled
		}
	case q.hold.active, bare && inf.window.on() && granted:
	case now.Before(inf.blockedUntil[causeClass(cause)]):
	case bare && inf.evidence.impliesLimit(f.Cause == throttle.CauseRetryNow, q.roundTrip(), now):
		inf.evidence.restart()
		inf.stopNext = true
		return true
	case !bare && !inf.window.on(): // a trial is judged by what the loop alone lets through
		if share, ok := inf.evidence.suggestsLimit(f.Cause, q.roundTrip(), now); ok {
			inf.evidence.restart()
			inf.loop.beginTrial(f.Cause, share, inf.accepted.latest(now), inf.accepted.highest(now)/2, q.roundTrip(), q.inFlight.sent, now)
			f.Outcome = throttle.Throttled
		}
	}
	return false
}

// cutConcurrency holds new requests for one round trip after a bare 429 that is not evidence,
// and then halves how many may be in flight.
func (q *quota) cutConcurrency(now time.Time) {
	c := &q.inference.cut
	c.successes = 0
	if now.Before(c.until) {
		return
	}
	c.until = now.Add(q.roundTrip())
	c.maxInFlight = minInFlight
	if start := int64(q.endpoint.tracker.initialConcurrency()); q.start.isNew() && start > 0 {
		c.maxInFlight = start
	} else {
		inFlight := float64(q.inFlight.open)
		if !q.start.isNew() { // requests that no limit was asked for are in flight, too
			inFlight = max(inFlight, q.inference.accepted.latest(now)*q.roundTrip().Seconds())
		}
		c.maxInFlight = max(minInFlight, int64(min(inFlight/2, maxFlight)))
	}
}

// check reports whether one more request may be in flight beside open others.
func (c *concurrencyCut) check(open int64, now time.Time) (wait time.Duration, ok bool) {
	if wait = c.until.Sub(now); wait > 0 {
		return wait, false
	}
	return 0, c.maxInFlight == 0 || open < c.maxInFlight
}

// accepted notes that a request succeeded.
func (c *concurrencyCut) accepted() {
	if c.maxInFlight == 0 {
		return
	}
	if c.successes++; c.successes >= cutEndsAfter {
		*c = concurrencyCut{}
	}
}

// rejected takes in the response to claim n that was rejected for the estimated cause.
func (q *quota) rejected(n uint64, cause throttle.Cause, now time.Time) {
	inf := q.infer(acceptedSpan{}, now)
	if inf == nil {
		return
	}
	bare := cause == throttle.CauseUnstated
	switch probe := q.hold.active && n > q.hold.lastSent; {
	case bare && (inf.stopNext || probe):
		q.stop(n, now)
	case q.hold.active:
	case inf.window.on() && bare:
		q.updateWindow(inf.window.rejected(n, q.inFlight.sent, now), n, now)
	case inf.loop.on():
		if inf.loop.cause == cause {
			q.updateLoop(n, true, now)
		}
	case bare:
		q.cutConcurrency(now)
	}
}

// stop lets nothing through until a probe has been accepted.
func (q *quota) stop(n uint64, now time.Time) {
	inf := q.inference
	if inf != nil && !q.hold.active {
		inf.beforeStop, inf.pending = q.span, !inf.loop.on()
		inf.beforeStop.until = now
	}
	how := q.closing(0, now)
	how.estimated, how.estimatedPause = true, q.estimatedPause(now)
	q.hold.close(n, now, how)
	if inf != nil {
		inf.stopNext, inf.cut = false, concurrencyCut{}
	}
}

// updateLoop reports the response to claim n to the loop.
func (q *quota) updateLoop(n uint64, bad bool, now time.Time) {
	l, rtt := &q.inference.loop, q.roundTrip()
	if !l.counts(n, now) {
		return
	}
	l.addResponse(bad)
	effect := continueLoop
	switch {
	case l.trial.active:
		effect = l.judge(bad, rtt, q.inFlight.sent, now)
	case bad:
		effect = l.rejected(q.inference.accepted.highest(now), rtt, q.inFlight.sent, now)
	}
	switch effect {
	case stopSending:
		q.stop(n, now)
	case abandonLoop, endLoop:
		q.dropLoop(effect == abandonLoop, now)
	}
}

// dropLoop ends the loop. failed says that it could not find a limit: then none is
// estimated for a while.
func (q *quota) dropLoop(failed bool, now time.Time) {
	inf := q.inference
	if failed {
		inf.blockedUntil[causeClass(inf.loop.cause)] = now.Add(noEstimate)
	}
	inf.loop, inf.pending = rateLoop{}, false
	inf.evidence.restart()
}

// stated takes in a rejection that states when to come back, and that no stated limit
// explains. Retry-After says nothing of the rate, but many such rejections do.
func (q *quota) stated(n uint64, retryAfter time.Duration, now time.Time) {
	if q.endpoint.tracker.Mode != Full {
		return
	}
	inf := q.infer(acceptedSpan{}, now)
	if inf == nil {
		return
	}
	inf.successesInRow = 0
	if inf.window.on() {
		q.updateWindow(inf.window.rejected(n, q.inFlight.sent, now), n, now)
		return
	}
	if inf.loop.on() {
		if l := &inf.loop; l.cause == throttle.CauseUnstated && l.counts(n, now) {
			l.addResponse(true)
			l.stated = max(l.stated, retryAfter)
			if effect := l.rejected(inf.accepted.highest(now), q.roundTrip(), q.inFlight.sent, now); effect == abandonLoop || effect == endLoop {
				q.dropLoop(effect == abandonLoop, now)
				return
			}
			l.plateau = max(l.plateau, min(10*retryAfter.Seconds(), 60))
		}
		return
	}
	inf.evidence.add(throttle.CauseUnstated, now)
	inf.statedHold = max(inf.statedHold, retryAfter)
	if q.hold.closings <= 1 && !inf.beforeStop.until.Equal(q.hold.closedAt) { // the hold is a new one
		inf.beforeStop = q.span
		inf.beforeStop.until = q.hold.closedAt
	}
	if !inf.pending && !now.Before(inf.blockedUntil[causeClass(throttle.CauseUnstated)]) && inf.evidence.statedImplyLimit(now) {
		inf.evidence.restart()
		inf.pending = true
	}
}

// released begins the loop, if there was evidence for it before the stop or hold that has
// ended now.
func (q *quota) released(now time.Time) {
	inf := q.inference
	if inf == nil {
		return
	}
	if inf.loop.on() {
		inf.loop.next = later(inf.loop.next, q.lastGranted)
	} else if inf.window.on() {
		inf.window.released(q.inFlight.sent, q.lastGranted)
	} else if inf.pending && inf.beforeStop.n > 0 { // a server that accepted nothing has shown no rate
		refused := time.Time{}
		if q.hold.closedAt.After(inf.beforeStop.until) {
			refused = q.hold.closedAt
		}
		if q.lastGranted.Before(q.hold.until.Add(basePause)) { // a probe that was sent later does not show how long the stop had to be
			inf.window = newLearnedWindow(inf.beforeStop, inf.beforeStop.until, refused, q.lastGranted, q.inFlight.sent)
		}
		if inf.window.on() {
			if inf.statedHold > 0 {
				inf.window.recordStated(inf.statedHold, refused.IsZero())
			}
			inf.pending, inf.beforeStop, inf.statedHold, inf.cut = false, acceptedSpan{}, 0, concurrencyCut{}
			inf.evidence.restart()
			return
		}
		inf.loop.beginAfterStop(inf.beforeStop, inf.statedHold, q.hold.closedAt, q.lastGranted, now, inf.accepted.highest(now)/2, q.inFlight.sent)
	}
	if !inf.pending {
		q.span = acceptedSpan{since: q.lastGranted} // the hold may have ended with a window of the server
	}
	if !inf.loop.on() && !inf.window.on() {
		q.start.release(max(q.hold.inFlight, q.firstBound()))
	}
	inf.pending, inf.beforeStop, inf.statedHold = false, acceptedSpan{}, 0
	inf.evidence.restart()
}

// succeeded takes in the response to claim n that was accepted.
func (q *quota) succeeded(n uint64, now time.Time) {
	inf := q.inference
	inf.evidence.add(causeSuccess, now)
	inf.accepted.add(1, now)
	if q.hold.active && n <= q.hold.lastSent {
		inf.beforeStop.n++ // it was in flight when the stop or hold began
	}
	inf.cut.accepted()
	if inf.window.on() {
		q.updateWindow(inf.window.succeeded(n, q.lastGranted), n, now)
	} else if inf.loop.on() {
		inf.loop.span.n++
		q.updateLoop(n, false, now)
	}
	inf.successesInRow++
	if inf.successesInRow >= forgetAfter && !inf.loop.on() && !inf.window.on() && !inf.pending && inf.cut.maxInFlight == 0 && !q.hold.active && !now.Before(later(inf.blockedUntil[0], inf.blockedUntil[1])) {
		q.dropInference()
	}
}

// updateWindow acts on what the response to claim n says of the learned window.
func (q *quota) updateWindow(v verdict, n uint64, now time.Time) {
	inf := q.inference
	w := inf.window
	switch v {
	case fitsWindow:
		return
	case fitsBucket:
		inf.window = learnedWindow{}
		rate, sure := w.bucketRate(now)
		inf.loop.beginAt(rate, q.inFlight.sent, now)
		inf.loop.confirmed = sure
		switch {
		case !sure:
			inf.loop.goal, inf.loop.growth = math.Inf(1), 2
		case w.stated > 0 && w.stated <= shortHold:
			inf.loop.stated = w.stated
		}
	case beyondWindow:
		inf.window = learnedWindow{}
		inf.loop.beginAt(w.rate(), q.inFlight.sent, now)
		if inf.loop.goal, inf.loop.growth = math.Inf(1), 2; w.maxLength > longStop {
			inf.loop.growth = 5
		}
		if w.stated > 0 && w.stated <= shortHold {
			inf.loop.rate, inf.loop.stated = belowStated*float64(w.confirmedLimit)/w.stated.Seconds(), w.stated
			inf.loop.goal = inf.loop.rate
		}
		if w.maxLength > longStop {
			inf.loop.minPlateau = min(20*w.maxLength.Seconds(), 300)
		}
	case fitsNothing:
		inf.window = learnedWindow{}
		q.stop(n, now)
	}
}

const longStop = 3 * time.Second // that a rejection costs

// probeAfter are the times after the first request at which probes are sent.
var probeAfter = []time.Duration{
	time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute,
}

// estimatedPause returns how long to send nothing after a rejection that states no time. The first
// probe comes when a window of a usual length ends that began with the first request, or
// after the time that ended the latest such hold.
func (q *quota) estimatedPause(now time.Time) time.Duration {
	h, t := &q.hold, q.endpoint.tracker
	late := time.Duration(t.random() * float64(maxLate))
	switch elapsed := now.Sub(h.since); {
	case !h.active && h.lastGap > basePause:
		return min(h.lastGap, maxPause) + late
	case h.active && h.lastGap > basePause && h.closings == 1 && h.lastTotal > elapsed+basePause:
		return min(h.lastTotal-elapsed, maxPause) + late
	}
	if q.inference == nil || q.inference.beforeStop.since.IsZero() || q.inference.loop.on() {
		return 0
	}
	for _, u := range probeAfter {
		if wait := q.inference.beforeStop.since.Add(u).Sub(now); wait >= basePause/4 {
			wait += openingDelay + time.Duration(t.random()*float64(min(u/16, maxLate)))
			if u <= basePause {
				return min(wait, basePause)
			}
			return wait
		}
	}
	return 0
}

// dropInference forgets what is estimated of b.
func (q *quota) dropInference() {
	if q.inference != nil {
		q.inference = nil
		q.endpoint.memory.release(inferenceBytes)
	}
}

// began notes that a request is sent now after an idle time: what was accepted before
// says nothing of now.
func (q *quota) began(now time.Time) {
	free := later(q.lastGranted, q.hold.until)
	if q.inference != nil {
		free = later(free, q.inference.loop.next)
	}
	if !q.span.since.IsZero() && now.Sub(free) <= idleAfter {
		return
	}
	q.span = acceptedSpan{since: now}
	if q.inference != nil {
		q.inference.loop.span, q.inference.loop.lastRate, q.inference.loop.idle = q.span, 0, true
	}
}
