package quota

import (
	"math"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// maxTold is how many limits of one server are kept. The drafts of RateLimit and
// every API in testdata name fewer.
const maxEstimates = 8

// A estimate is one limit of the server as its answers describe it.
//
// Answers arrive out of order, so the question is which of two is newer. An
// answer to a request that was sent after the present numbers had arrived is
// surely newer, and replaces them. Any other may be older: within one window it
// may only lower what is left.
//
// What may be sent is what was left less all that is still without an answer:
// some of it may be counted already, and counting it twice only costs a moment.
//
//	received: 7 left          sent, no answer yet          may be sent
//	├───────────────┼───────────────┼──────────────────────────────┤
//	                       3                       4
//
// Units come back in one of two ways, and the words of the server do not tell
// which: all at once at the reset (a window), or evenly (a bucket, whose reset is
// when it will be full). So the last unit is held back for a moment and then
// sent as a scout: what its answer says is left tells the one from the other. It
// was ours to send anyhow, so the lesson is free.
type estimate struct {
	name        string
	limit       int64
	remaining   int64         // as last received
	per         time.Duration // 0: not said
	reset       time.Time     // when units come back; never zero
	at          time.Time     // when remaining was received
	openThen    int64         // claims without an answer by then
	seen        uint64        // number of the latest claim sent by then
	probe       bool          // the window is over: one claim asks what is left now
	next        time.Time     // when the next claim may go, if they are spread
	refill      refill
	others      otherClients
	start       windowStart
	cost        unitCost
	concurrency concurrencyTest
	early       earlyTest
	counted     countedWindows
	probePause  time.Duration // between probes, if no reset is stated; 0: a second
	weighted    bool          // it counts something that claims take different numbers of: who else does so is not known
}

// countsRequests reports whether w says how many requests are left, the one unit
// that every request is known to cost, or how many more may be in flight.
func countsRequests(w throttle.RemoteLimit) bool {
	return !w.RemainingUnknown && (w.Unit == "" || w.Unit == "requests" || w.Unit == unitConcurrent)
}

// free returns how many units may be taken as of now, and if too few, how long
// until there may be more; 0: when an answer has come.
func (e *estimate) free(now time.Time, f *inFlight, use pacing) (units int64, wait time.Duration) {
	if e.concurrency.confirmed {
		return e.freeConcurrency(now, f, use)
	}
	if e.early.distrusted() {
		return math.MaxInt64, 0
	}
	units = e.left(now) - f.open - use.reserved(e.limit)
	switch {
	case e.probe:
		return 1 - min(f.after(e.seen), 1), 0
	case e.probesNow(now, f, use):
		return 1, 0
	case units > 0 && e.isShared(now, f.open):
		units = e.remaining - f.open - use.reserved(e.limit)
		if wait = e.others.wait(units+f.open, f.open, e.at, now, e.reset); wait > 0 {
			return 0, wait
		}
		return units, 0
	case units > 0 && use.spreads(e, units, now):
		if wait = e.next.Sub(now); wait > 0 {
			return 0, wait
		}
		return units, 0
	case units > 1 || units == 1 && !e.keepsLastUnit():
		return units, 0
	case units == 1 && f.open > 0:
		return 0, 0
	case units == 1:
		if wait = e.at.Add(e.lastUnitDelay()).Sub(now); wait <= 0 {
			return 1, 0
		}
		return 0, wait
	}
	wait = e.opensAt(use).Sub(now)
	if next := e.refill.until(units, e.at, now); next > 0 {
		wait = min(wait, next)
	}
	if wait <= 0 { // the reset is over, and all that is left is on its way
		if e.counted.on {
			return 0, max(wait+tolerance, 0)
		}
		return 0, 0
	}
	return 0, wait
}

// probesNow reports whether the next claim to go is the probe: the window is over,
// and of what was left there is nothing to send.
func (e *estimate) probesNow(now time.Time, f *inFlight, use pacing) bool {
	if e.counted.on && f.open > 0 && now.Before(e.opensAt(use).Add(tolerance)) {
		return false // it could be served before a request of the present window
	}
	return !e.probe && !e.concurrency.confirmed && !now.Before(e.opensAt(use)) && (e.remaining <= f.open+use.reserved(e.limit) || e.others.present || e.counted.on && e.counted.length > 0)
}

// granted notes that the next claim of f goes at now. Nothing else moves t on but
// answers: to ask what is free changes nothing.
func (e *estimate) granted(now time.Time, f *inFlight, use pacing) {
	if e.probesNow(now, f, use) {
		e.probe, e.seen = true, f.sent
	}
}

// keepsLastUnit reports whether the last unit is kept for a scout.
func (e *estimate) keepsLastUnit() bool {
	return e.refill.kind == refillUnknown && e.limit > 1 && e.reset.Sub(e.at) >= minLastUnitDelay*2
}

const (
	minLastUnitDelay = 50 * time.Millisecond
	maxLastUnitDelay = 5 * time.Second
)

func (e *estimate) lastUnitDelay() time.Duration {
	return min(max(e.reset.Sub(e.at)/8, minLastUnitDelay), maxLastUnitDelay)
}

// slack is how far two tellings of one reset may be apart: many are whole seconds.
const tolerance = 1100 * time.Millisecond

// toleranceOf returns how far w may be apart from other tellings of its reset.
func toleranceOf(w throttle.RemoteLimit) time.Duration {
	return max(tolerance, tolerance+w.Resolution-time.Second)
}

// update takes over what an answer to claim n says.
func (e *estimate) update(w throttle.RemoteLimit, n uint64, now time.Time, f *inFlight) {
	if !e.weighted {
		if e.updateConcurrency(w, now, f) {
			return
		}
		w = e.inRequests(w, now, f.open)
	}
	reset, left := e.resetOf(w, now), max(w.Remaining, 0)
	if left == 0 {
		e.counted.ends(reset, e.at)
	}
	e.early.update(e, reset, left, n, now)
	newer, over := n > e.seen, !now.Before(e.reset)
	if !e.weighted && statesReset(w) && !e.usedByUs(w, now, f) && e.compare(w, n, f.sent, now) {
		over, e.refill.kind = true, refillUnknown
	}
	e.start.observe(w, now, over, e.probe && newer && left == 0)
	reset = e.start.refine(reset, w.Resolution)
	if e.refill.kind != refillsEvenly && w.Limit == e.limit {
		switch ahead := reset.Sub(e.reset); {
		case ahead < -toleranceOf(w) && !newer:
			return // speaks of a window that is over
		case ahead > toleranceOf(w) && !newer && left > e.left(now):
			return // or of one in which a bucket was not as empty yet
		case ahead > toleranceOf(w):
			over = true
		case !over && e.refill.kind != refillsEach: // which moves with each unit that comes back
			reset = e.earlierReset(reset, w)
		}
	}
	switch {
	case over:
		e.refill.restart()
	case newer:
		e.refill.update(e, left, resetOf(w, now), now, f)
	case left >= e.left(now):
		if e.refill.kind == refillsEvenly { // it was emptier later, and is full later
			reset = later(reset, e.reset)
		}
		e.reset, e.openThen = reset, max(e.openThen-1, 0) // that claim was counted before
		if e.refill.kind == refillsEach && e.refill.log == nil {
			e.remaining = max(e.remaining-1, 0) // or after, when more had come back
		}
		return
	}
	if e.refill.log != nil {
		e.refill.log.trim(max(w.Limit-left, 0))
	}
	e.limit, e.remaining, e.per, e.reset = max(w.Limit, left), left, w.Per, reset
	e.at, e.seen, e.openThen, e.probe = now, f.sent, f.open, false
	e.refill.begin(left, now, f.open)
}

// earlierReset returns the reset that is known by now: told roughly each is the true
// one or later, so the earliest is best.
func (e *estimate) earlierReset(reset time.Time, w throttle.RemoteLimit) time.Time {
	if w.Resolution == 0 || e.reset.After(reset) {
		return reset
	}
	return e.reset
}

// mayBeSameWindow reports whether w, received now, can be of the same window as t.
func (e *estimate) mayBeSameWindow(w throttle.RemoteLimit, now time.Time) bool {
	if !now.Before(e.reset) {
		return true // whatever it was is over
	}
	apart := resetOf(w, now).Sub(e.reset)
	return (e.refill.kind == refillsEvenly || -2*toleranceOf(w) < apart && apart < 2*toleranceOf(w)) && w.Remaining <= e.left(now)
}

// isOtherWindow reports whether w, which is not as large as e, is another limit of the same name:
// its window ends at another time, or is longer than any of e. Otherwise the size of e has changed.
func (e *estimate) isOtherWindow(w throttle.RemoteLimit, now time.Time) bool {
	reset, rough := resetOf(w, now), 2*toleranceOf(w)
	if !statesReset(w) {
		return false
	}
	if now.Before(e.reset) {
		return reset.Sub(e.reset).Abs() > rough
	}
	return e.others.window > 0 && reset.Sub(now) > 2*e.others.window+rough
}

// left returns how many units are left as of now if no more are taken.
func (e *estimate) left(now time.Time) int64 {
	return e.remaining + e.refill.returned(e.at, now, e.limit-e.remaining)
}

// usedByUs reports whether the log of a limit that restores each unit after a known time explains
// all that w states to be used, so that there are no other clients.
func (e *estimate) usedByUs(w throttle.RemoteLimit, now time.Time, f *inFlight) bool {
	r := &e.refill
	if r.log == nil {
		return false
	}
	own := r.log.count(now.Add(-r.window-r.window/20), now) + f.open // requests were counted before their responses arrived
	return w.Limit-max(w.Remaining, 0)-own <= max(2, w.Limit/20)
}

// countAccepted counts a request that was accepted, as of now.
func (e *estimate) countAccepted(now time.Time) {
	e.refill.responses++
	if e.refill.log != nil {
		e.refill.log.add(now, 1)
	}
}

// countUnstated counts claim n, whose response did not state what is left. accepted says that it was
// no rejection. It reports whether t is out of date: not even the response to the probe speaks
// of it, and it is a rejection.
func (e *estimate) countUnstated(n uint64, accepted bool, now time.Time, f *inFlight) (outdated bool) {
	switch {
	case e.probe && n > e.seen:
		if !accepted || e.limit == 0 || e.counted.refuted {
			return true
		}
		e.beginWindow(now, f)
		return false
	case e.concurrency.confirmed || e.probe && !e.counted.on:
		return false
	}
	e.remaining = max(e.remaining-1, 0)
	return false
}

// statesReset reports whether w states when units come back. Without that nothing can be
// said of other clients.
func statesReset(w throttle.RemoteLimit) bool { return w.ResetAfter > 0 || w.Per > 0 }

// adaptProbePause adapts the time between probes of a limit without a stated reset to what the response
// to claim n states, if that was the probe.
func (e *estimate) adaptProbePause(w throttle.RemoteLimit, n uint64, o throttle.Outcome) {
	if 2*w.Remaining >= w.Limit {
		e.probePause = 0 // it has been idle
	}
	if !e.probe || n <= e.seen || statesReset(w) {
		return
	}
	if e.probePause == 0 {
		e.probePause = time.Second
	}
	switch {
	case o == throttle.Throttled:
		e.probePause = min(e.probePause+e.probePause/2, maxProbePause)
	case w.Remaining >= manyRemaining:
		e.probePause = max(e.probePause/2, minLastUnitDelay)
	}
}

const (
	maxProbePause = 8 * time.Second
	manyRemaining = 8 // units that a probe found: some servers restore whole units only, so a few should come back
)

// resetOf is the function resetOf for a response to a request of t.
func (e *estimate) resetOf(w throttle.RemoteLimit, now time.Time) time.Time {
	if e.probePause > 0 && !statesReset(w) {
		return now.Add(e.probePause)
	}
	return resetOf(w, now)
}

// resetOf returns when units come back. If the server does not say, it is when
// the window is over, or a second.
func resetOf(w throttle.RemoteLimit, now time.Time) time.Time {
	after := min(w.ResetAfter, maxDelay)
	if after <= 0 {
		after = min(max(w.Per, 0), maxDelay)
	}
	if after == 0 {
		after = time.Second
	}
	return now.Add(after)
}

// maxDelay is the longest delay that a server can state.
const maxDelay = headers.MaxDelay

// An earlyTest decides when to doubt a limit that states that nothing is left. Where its
// reset is more than an hour away, and not within the window that the server states, one
// request tests it after Tracker.MaxHold, and then after three, nine ... times as long, as
// for a Retry-After, see gate. A limit that is contradicted loses trust: three requests
// that were sent after it had stated that nothing is left, and were accepted before its
// reset.
type earlyTest struct {
	end          time.Time // the latest reset that was stated with nothing left; zero: units are left
	since        time.Time // when the next test was planned
	tests        int32     // that found nothing left
	moved        int32     // of them, those that moved the end
	contradicted int32     // requests that were accepted
}

const contradictions = 3 // accepted requests, and a limit is not believed

// distrusted reports whether the limit has lost trust, until it states that units are left.
func (t *earlyTest) distrusted() bool { return t.contradicted >= contradictions }

// opensAt returns when the next request may be sent although nothing is left of t: at its
// reset, or before to test it.
func (e *estimate) opensAt(use pacing) time.Time {
	t := &e.early
	if at := e.refill.firstReturn(e.at); !at.IsZero() {
		if stated := e.reset.Add(openingDelay); stated.Before(at) {
			return stated // a unit comes back that the log does not hold
		}
		return at
	}
	if t.end.IsZero() || t.moved >= maxMoved || e.reset.Sub(t.since) <= max(maxStated, e.per) {
		return e.reset
	}
	test := t.since
	if t.contradicted == 0 {
		test = test.Add(tripled(use.maxHold, int(t.tests)))
	}
	if test.Before(e.reset) {
		return test
	}
	return e.reset
}

// update takes in that left units are left of t until reset, by the response to claim n.
func (t *earlyTest) update(e *estimate, reset time.Time, left int64, n uint64, now time.Time) {
	switch {
	case left > 0:
		*t = earlyTest{}
	case t.end.IsZero():
		*t = earlyTest{end: reset, since: now, contradicted: t.contradicted}
	case e.probe && n > e.seen: // a test found nothing left
		if reset.Sub(t.end) > movedBy {
			t.moved++
		}
		t.tests++
		t.since, t.end = now, later(t.end, reset)
	}
}

// accepted notes that claim n was accepted, of which t had stated that nothing is left.
func (t *earlyTest) accepted(e *estimate, n uint64, now time.Time) {
	if t.end.IsZero() || n <= e.seen || !now.Before(e.reset) || e.remaining > 0 || e.refill.kind == refillsEvenly || e.refill.kind == refillsEach || e.concurrency.confirmed {
		return
	}
	t.contradicted++
}

// countedWindows is what is known of the windows of a limit that only rejections state. The requests
// of a window are counted here, since responses to accepted ones do not state it. A window begins with
// the request that is accepted after the end of the one before. It ends when the next
// rejection states, and then on a grid of that, unless windows begin with their first request.
type countedWindows struct {
	end     time.Time     // of a window, as a rejection stated it; zero: none did
	length  time.Duration // of windows; 0: not known, so a request is sent beyond the limit to learn it
	windows int32         // since the length was learned
	on      bool          // the server states the limit in rejections only
	offGrid bool          // a window ended later than on the grid of those before
	refuted bool          // a rejection came long before a window was used up: units come back in another way
}

// rejected takes in a rejection of a request that was sent in the present window, of which
// left of limit units are left by what was counted.
func (c *countedWindows) rejected(left, limit int64) {
	if c.on && left > max(limit/8, 1) {
		*c = countedWindows{refuted: true}
	}
}

// ends takes in that a rejection stated the end of the window that began at start.
func (c *countedWindows) ends(end, start time.Time) {
	before := c.end
	c.end = end
	if !c.on || end.Sub(before) <= tolerance {
		return
	}
	length := end.Sub(start) // from the first request
	if start.Sub(before) < tolerance {
		length = end.Sub(before)
	}
	for _, u := range usualLengths {
		if d := length - u; -tolerance < d && d < tolerance {
			length = u
			break
		}
	}
	if c.length > 0 && (end.Sub(before)%c.length).Abs() > tolerance && c.length-end.Sub(before)%c.length > tolerance {
		c.offGrid = true
	}
	c.length, c.windows = length, 0
}

// next returns the end of the window that begins now: now, if that is not known.
func (c *countedWindows) next(now time.Time) time.Time {
	switch {
	case c.length <= 0:
		return now
	case c.offGrid || c.end.IsZero():
		return now.Add(c.length)
	}
	passed := now.Sub(c.end) % c.length
	if passed < 0 {
		passed += c.length
	}
	return now.Add(c.length - passed)
}

// beginWindow notes that the window of t began with the request whose response came now: it was
// accepted, and its response states nothing.
func (e *estimate) beginWindow(now time.Time, f *inFlight) {
	e.counted.on, e.early = true, earlyTest{}
	if e.counted.windows++; e.counted.windows > testEvery {
		e.counted.windows, e.counted.length = 0, 0 // the limit may have been raised: one request goes beyond it
	}
	e.remaining, e.at, e.seen, e.openThen, e.probe = e.limit-1, now, f.sent, f.open, false
	e.reset = e.counted.next(now)
	e.refill, e.others = refill{kind: refillsAtReset}, otherClients{window: e.others.window}
}
