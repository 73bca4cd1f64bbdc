package quota

import (
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
)

// An estimator holds what is estimated of a quota whose server does not state its
// limits. A quota has none until the first response that may be a rejection and states
// nothing, and loses it when 50 responses in a row have succeeded since.
//
//	below evidence     one round trip without new requests after a bare 429, then half as many in flight
//	evidence           rejections: no requests until one probe is accepted, then the rate loop
//	                   suspected causes: the rate loop with a trial, never a stop
type estimator struct {
	marks    marks
	accepted acceptedRate
	caution  caution
	loop     rateLoop
	window   learnedWindow

	first    tally         // accepted before the present stop or hold
	hold     time.Duration // that the server stated for it; 0: none
	pending  bool          // the loop begins when that ends
	stopNext bool          // there is evidence: the next rejection that is observed stops the quota
	none     [2]time.Time  // a loop has failed: there is no other of its class before this, see causeClass
	calm     int           // responses that succeeded since the last that did not
}

// causeClass returns the index in estimator.none of a cause: rejections, and what is only
// suspected to be one.
func causeClass(c throttle.Cause) int {
	if c == throttle.CauseUnstated {
		return 0
	}
	return 1
}

const calmAfter = 50 // successful responses in a row, and the estimator is dropped

// A caution is what follows a bare 429 that is not evidence.
type caution struct {
	until time.Time // no requests are sent before
	most  int64     // requests in flight; 0: not bounded
	good  int       // responses in a row that succeeded
}

const (
	leastInFlight = 4 // at any time, also after a bare 429
	cautionEnds   = 8 // successful responses in a row

	minRoundTrip     = time.Millisecond
	maxRoundTrip     = 250 * time.Millisecond
	unknownRoundTrip = 50 * time.Millisecond
)

// roundTrip returns how long the server usually takes to respond, as far as estimates
// are concerned.
func (b *bucket) roundTrip() time.Duration {
	if b.strain.usual == 0 {
		return unknownRoundTrip
	}
	return min(max(b.strain.usual, minRoundTrip), maxRoundTrip)
}

// isEstimated reports whether a limit can only be estimated from responses of cause c.
func isEstimated(c throttle.Cause) bool {
	switch c {
	case throttle.CauseUnstated, throttle.CauseRetryNow, throttle.CauseUnavailable, throttle.CauseForbidden, throttle.CauseDropped, throttle.CauseTimeout:
		return true
	}
	return false
}

// estimator returns the estimator of b, which begins with what was accepted before:
// before, or if that is zero, what b has counted. It is nil if the host has used up its
// memory: then nothing is estimated of b.
func (b *bucket) estimator(before tally, now time.Time) *estimator {
	if b.est != nil || b.dropped || !b.site.budget.take(estimatorBytes) {
		return b.est
	}
	b.est = new(estimator)
	if before.since.IsZero() {
		before = b.span
	}
	if before.ok > 0 {
		span := max(now.Sub(before.since), 0)
		b.est.marks.credit(before.ok, span, now)
		b.est.accepted.spread(before.ok, span, now)
	}
	b.est.marks.total = max(b.est.marks.total, b.good)
	b.span = before
	return b.est
}

// suspect takes in a response that may be a rejection and states nothing. before is
// what was accepted before it, as far as it was not counted by b, and granted reports
// whether b had granted the request. It sets f.Outcome to Throttled while an estimate
// explains the response, and reports whether there is evidence to stop.
func (b *bucket) suspect(f *throttle.Feedback, before tally, granted bool) (stop bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.record(b.view())
	now := b.now(f.Now)
	e := b.estimator(before, now)
	if e == nil {
		return false
	}
	e.calm = 0
	if !granted && (e.loop.on() || b.gate.ajar) {
		return false // it was sent before the loop or the stop began
	}
	cause := f.Cause
	if cause == throttle.CauseRetryNow {
		cause = throttle.CauseUnstated
	}
	e.marks.add(cause, now)
	bare := cause == throttle.CauseUnstated
	switch {
	case e.loop.on():
		if e.loop.cause == cause {
			f.Outcome = throttle.Throttled
		}
	case b.gate.ajar, bare && e.window.on() && granted:
	case now.Before(e.none[causeClass(cause)]):
	case bare && e.marks.implied(f.Cause == throttle.CauseRetryNow, b.roundTrip(), now):
		e.marks.restart()
		e.stopNext = true
		return true
	case !bare && !e.window.on(): // a trial is judged by what the loop alone lets through
		if share, ok := e.marks.suspected(f.Cause, b.roundTrip(), now); ok {
			e.marks.restart()
			e.loop.suspect(f.Cause, share, e.accepted.latest(now), e.accepted.highest(now)/2, b.roundTrip(), b.flight.sent, now)
			f.Outcome = throttle.Throttled
		}
	}
	return false
}

// pause holds new requests for one round trip after a bare 429 that is not evidence,
// and then halves how many may be in flight.
func (b *bucket) pause(now time.Time) {
	c := &b.est.caution
	c.good = 0
	if now.Before(c.until) {
		return
	}
	c.until = now.Add(b.roundTrip())
	c.most = leastInFlight
	if start := int64(b.site.tracker.start()); b.young() && start > 0 {
		c.most = start
	} else {
		inFlight := float64(b.flight.open)
		if !b.young() { // requests that no limit was asked for are in flight, too
			inFlight = max(inFlight, b.est.accepted.latest(now)*b.roundTrip().Seconds())
		}
		c.most = max(leastInFlight, int64(min(inFlight/2, maxFlight)))
	}
}

// check reports whether one more request may be in flight beside open others.
func (c *caution) check(open int64, now time.Time) (wait time.Duration, ok bool) {
	if wait = c.until.Sub(now); wait > 0 {
		return wait, false
	}
	return 0, c.most == 0 || open < c.most
}

// accepted notes that a request succeeded.
func (c *caution) accepted() {
	if c.most == 0 {
		return
	}
	if c.good++; c.good >= cautionEnds {
		*c = caution{}
	}
}

// rejected takes in the response to claim n that was rejected for the estimated cause.
func (b *bucket) rejected(n uint64, cause throttle.Cause, now time.Time) {
	e := b.estimator(tally{}, now)
	if e == nil {
		return
	}
	bare := cause == throttle.CauseUnstated
	switch probe := b.gate.ajar && n > b.gate.round; {
	case bare && (e.stopNext || probe):
		b.stop(n, now)
	case b.gate.ajar:
	case e.window.on() && bare:
		b.tellWindow(e.window.rejected(n, b.flight.sent, now), n, now)
	case e.loop.on():
		if e.loop.cause == cause {
			b.tellLoop(n, true, now)
		}
	case bare:
		b.pause(now)
	}
}

// stop lets nothing through until a probe has been accepted.
func (b *bucket) stop(n uint64, now time.Time) {
	e := b.est
	if e != nil && !b.gate.ajar {
		e.first, e.pending = b.span, !e.loop.on()
		e.first.until = now
	}
	how := b.shutting(0)
	how.estimated, how.own = true, b.ownPause(now)
	b.gate.shut(n, now, how)
	if e != nil {
		e.stopNext, e.caution = false, caution{}
	}
}

// tellLoop reports the response to claim n to the loop.
func (b *bucket) tellLoop(n uint64, bad bool, now time.Time) {
	l, rtt := &b.est.loop, b.roundTrip()
	if !l.counts(n, now) {
		return
	}
	l.note(bad)
	effect := goOn
	switch {
	case l.trial.on:
		effect = l.judge(bad, rtt, b.flight.sent, now)
	case bad:
		effect = l.rejected(b.est.accepted.highest(now), rtt, b.flight.sent, now)
	}
	switch effect {
	case stop:
		b.stop(n, now)
	case drop, forget:
		b.dropLoop(effect == drop, now)
	}
}

// dropLoop ends the loop. failed says that it could not find a limit: then none is
// estimated for a while.
func (b *bucket) dropLoop(failed bool, now time.Time) {
	e := b.est
	if failed {
		e.none[causeClass(e.loop.cause)] = now.Add(noEstimate)
	}
	e.loop, e.pending = rateLoop{}, false
	e.marks.restart()
}

// stated takes in a rejection that states when to come back, and that no stated limit
// explains. Retry-After says nothing of the rate, but many such rejections do.
func (b *bucket) stated(n uint64, retryAfter time.Duration, now time.Time) {
	if b.site.tracker.Mode != Full {
		return
	}
	e := b.estimator(tally{}, now)
	if e == nil {
		return
	}
	e.calm = 0
	if e.window.on() {
		b.tellWindow(e.window.rejected(n, b.flight.sent, now), n, now)
		return
	}
	if e.loop.on() {
		if l := &e.loop; l.cause == throttle.CauseUnstated && l.counts(n, now) {
			l.note(true)
			l.stated = max(l.stated, retryAfter)
			if effect := l.rejected(e.accepted.highest(now), b.roundTrip(), b.flight.sent, now); effect == drop || effect == forget {
				b.dropLoop(effect == drop, now)
				return
			}
			l.plateau = max(l.plateau, min(10*retryAfter.Seconds(), 60))
		}
		return
	}
	e.marks.add(throttle.CauseUnstated, now)
	e.hold = max(e.hold, retryAfter)
	if b.gate.strikes <= 1 && !e.first.until.Equal(b.gate.at) { // the hold is a new one
		e.first = b.span
		e.first.until = b.gate.at
	}
	if !e.pending && !now.Before(e.none[causeClass(throttle.CauseUnstated)]) && e.marks.impliedByStatements(now) {
		e.marks.restart()
		e.pending = true
	}
}

// opened begins the loop, if there was evidence for it before the stop or hold that has
// ended now.
func (b *bucket) opened(now time.Time) {
	e := b.est
	if e == nil {
		return
	}
	if e.loop.on() {
		e.loop.next = later(e.loop.next, b.last)
	} else if e.window.on() {
		e.window.released(b.flight.sent, b.last)
	} else if e.pending && e.first.ok > 0 { // a server that accepted nothing has shown no rate
		refused := time.Time{}
		if b.gate.at.After(e.first.until) {
			refused = b.gate.at
		}
		if b.last.Before(b.gate.until.Add(basePause)) { // a probe that was sent later does not show how long the stop had to be
			e.window = infer(e.first, e.first.until, refused, b.last, b.flight.sent)
		}
		if e.window.on() {
			if e.hold > 0 {
				e.window.state(e.hold, refused.IsZero())
			}
			e.pending, e.first, e.hold, e.caution = false, tally{}, 0, caution{}
			e.marks.restart()
			return
		}
		e.loop.open(e.first, e.hold, b.gate.at, b.last, now, e.accepted.highest(now)/2, b.flight.sent)
	}
	e.pending, e.first, e.hold = false, tally{}, 0
	e.marks.restart()
}

// succeeded takes in the response to claim n that was accepted.
func (b *bucket) succeeded(n uint64, now time.Time) {
	e := b.est
	e.marks.add(markGood, now)
	e.accepted.add(1, now)
	if b.gate.ajar && n <= b.gate.round {
		e.first.ok++ // it was in flight when the stop or hold began
	}
	e.caution.accepted()
	if e.window.on() {
		b.tellWindow(e.window.succeeded(n, b.last), n, now)
	} else if e.loop.on() {
		e.loop.span.ok++
		b.tellLoop(n, false, now)
	}
	e.calm++
	if e.calm >= calmAfter && !e.loop.on() && !e.window.on() && !e.pending && e.caution.most == 0 && !b.gate.ajar && !now.Before(later(e.none[0], e.none[1])) {
		b.dropEstimator()
	}
}

// tellWindow acts on what the response to claim n says of the learned window.
func (b *bucket) tellWindow(v verdict, n uint64, now time.Time) {
	e := b.est
	w := e.window
	switch v {
	case consistent:
		return
	case bucketLike:
		e.window = learnedWindow{}
		rate, sure := w.bucketRate(now)
		e.loop.begin(rate, b.flight.sent, now)
		e.loop.known = sure
		switch {
		case !sure:
			e.loop.goal, e.loop.eager = math.Inf(1), 2
		case w.stated > 0 && w.stated <= shortHold:
			e.loop.stated = w.stated
		}
	case faster:
		e.window = learnedWindow{}
		e.loop.begin(w.rate(), b.flight.sent, now)
		if e.loop.goal, e.loop.eager = math.Inf(1), 2; w.most > longStop {
			e.loop.eager = 5
		}
		if w.stated > 0 && w.stated <= shortHold {
			e.loop.rate, e.loop.stated = statedBelow*float64(w.whole)/w.stated.Seconds(), w.stated
			e.loop.goal = e.loop.rate
		}
		if w.most > longStop {
			e.loop.longest = min(20*w.most.Seconds(), 300)
		}
	case inconsistent:
		e.window = learnedWindow{}
		b.stop(n, now)
	}
}

const longStop = 3 * time.Second // that a rejection costs

// probeAfter are the times after the first request at which probes are sent.
var probeAfter = []time.Duration{
	time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute,
}

// ownPause returns how long to send nothing after a rejection that states no time. The first
// probe comes when a window of a usual length ends that began with the first request, or
// after the time that ended the latest such hold.
func (b *bucket) ownPause(now time.Time) time.Duration {
	g, t := &b.gate, b.site.tracker
	late := time.Duration(t.random() * float64(maxLate))
	switch elapsed := now.Sub(g.began); {
	case !g.ajar && g.gap > basePause:
		return min(g.gap, maxPause) + late
	case g.ajar && g.gap > basePause && g.strikes == 1 && g.total > elapsed+basePause:
		return min(g.total-elapsed, maxPause) + late
	}
	if b.est == nil || b.est.first.since.IsZero() || b.est.loop.on() {
		return 0
	}
	for _, u := range probeAfter {
		if wait := b.est.first.since.Add(u).Sub(now); wait >= basePause/4 {
			return wait + openingDelay + time.Duration(t.random()*float64(min(u/16, maxLate)))
		}
	}
	return 0
}

// dropEstimator forgets what is estimated of b.
func (b *bucket) dropEstimator() {
	if b.est != nil {
		b.est = nil
		b.site.budget.give(estimatorBytes)
	}
}

// began notes that a request is sent now after an idle time: what was accepted before
// says nothing of now.
func (b *bucket) began(now time.Time) {
	free := later(b.last, b.gate.until)
	if b.est != nil {
		free = later(free, b.est.loop.next)
	}
	if !b.span.since.IsZero() && now.Sub(free) <= idleAfter {
		return
	}
	b.span = tally{since: now}
	if b.est != nil {
		b.est.loop.span, b.est.loop.seen, b.est.loop.idle = b.span, 0, true
	}
}
