package quota

import (
	"math"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// maxTold is how many limits of one server are kept. The drafts of RateLimit and
// every API in testdata name fewer.
const maxTold = 8

// A told is one limit of the server as its answers describe it.
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
type told struct {
	name      string
	limit     int64
	remaining int64         // as last received
	per       time.Duration // 0: not said
	reset     time.Time     // when units come back; never zero
	at        time.Time     // when remaining was received
	open      int64         // claims without an answer by then
	seen      uint64        // number of the latest claim sent by then
	probe     bool          // the window is over: one claim asks what is left now
	next      time.Time     // when the next claim may go, if they are spread
	refill    refill
	others    others
	opening   opening
	price     price
	slots     slots
	early     earlyTest
	counted   counted
	pause     time.Duration // between probes, if no reset is stated; 0: a second
	unused    uint8         // responses in a row that stated an unused quota that is about to reset, at most minUnused
	metered   bool          // it counts something that claims take different numbers of: who else does so is not known
}

// countsRequests reports whether w says how many requests are left, the one unit
// that every request is known to cost, or how many more may be in flight.
func countsRequests(w throttle.RemoteLimit) bool {
	return !w.RemainingUnknown && (w.Unit == "" || w.Unit == "requests" || w.Unit == concurrency)
}

// free returns how many units may be taken as of now, and if too few, how long
// until there may be more; 0: when an answer has come.
func (t *told) free(now time.Time, f *flight, use use) (units int64, wait time.Duration) {
	if t.slots.are {
		return t.freeSlots(now, f, use)
	}
	if t.early.void() {
		return math.MaxInt64, 0
	}
	units = t.left(now) - f.open - use.kept(t.limit)
	switch {
	case t.probe:
		return 1 - min(f.after(t.seen), 1), 0
	case t.asksAnew(now, f, use):
		return 1, 0
	case units > 0 && t.shared(now, f.open):
		units = t.remaining - f.open - use.kept(t.limit)
		if wait = t.others.wait(units+f.open, f.open, t.at, now, t.reset); wait > 0 {
			return 0, wait
		}
		return units, 0
	case units > 0 && use.spreads(t, units, now):
		if wait = t.next.Sub(now); wait > 0 {
			return 0, wait
		}
		return units, 0
	case units > 1 || units == 1 && !t.holdsBack():
		return units, 0
	case units == 1 && f.open > 0:
		return 0, 0
	case units == 1:
		if wait = t.at.Add(t.scoutDelay()).Sub(now); wait <= 0 {
			return 1, 0
		}
		return 0, wait
	}
	wait = t.opens(use).Sub(now)
	if next := t.refill.until(units, t.at, now); next > 0 {
		wait = min(wait, next)
	}
	if wait <= 0 { // the reset is over, and all that is left is on its way
		if t.counted.on {
			return 0, max(wait+slack, 0)
		}
		return 0, 0
	}
	return 0, wait
}

// asksAnew reports whether the next claim to go is the probe: the window is over,
// and of what was left there is nothing to send.
func (t *told) asksAnew(now time.Time, f *flight, use use) bool {
	if t.counted.on && f.open > 0 && now.Before(t.opens(use).Add(slack)) {
		return false // it could be served before a request of the present window
	}
	return !t.probe && !t.slots.are && !now.Before(t.opens(use)) && (t.remaining <= f.open+use.kept(t.limit) || t.others.seen && !t.refills() || t.counted.on && t.counted.length > 0)
}

// refills reports whether response after response stated a quota that is unused and about to
// reset. So it is with a bucket, whose reset is when it is full: it has reset before the next
// claim, and a probe each time would let one claim through per round trip. A window states
// this once at most.
func (t *told) refills() bool { return t.unused >= minUnused }

// minUnused is the number of responses after which refills believes them.
const minUnused = 3

// granted notes that the next claim of f goes at now. Nothing else moves t on but
// answers: to ask what is free changes nothing.
func (t *told) granted(now time.Time, f *flight, use use) {
	if t.asksAnew(now, f, use) {
		t.probe, t.seen = true, f.sent
	}
}

// holdsBack reports whether the last unit is kept for a scout.
func (t *told) holdsBack() bool {
	return t.refill.kind == unseen && t.limit > 1 && t.reset.Sub(t.at) >= minScout*2
}

const (
	minScout = 50 * time.Millisecond
	maxScout = 5 * time.Second
)

func (t *told) scoutDelay() time.Duration {
	return min(max(t.reset.Sub(t.at)/8, minScout), maxScout)
}

// slack is how far two tellings of one reset may be apart: many are whole seconds.
const slack = 1100 * time.Millisecond

// slackOf returns how far w may be apart from other tellings of its reset.
func slackOf(w throttle.RemoteLimit) time.Duration { return max(slack, slack+w.Resolution-time.Second) }

// update takes over what an answer to claim n says.
func (t *told) update(w throttle.RemoteLimit, n uint64, now time.Time, f *flight) {
	if !t.metered {
		if t.takeSlots(w, now, f) {
			return
		}
		w = t.priced(w, now, f.open)
	}
	reset, left := t.resetOf(w, now), max(w.Remaining, 0)
	if left == 0 {
		t.counted.ends(reset, t.at)
	}
	t.early.update(t, reset, left, n, now)
	newer, over := n > t.seen, !now.Before(t.reset)
	if !t.metered && statesReset(w) && t.compare(w, n, f.sent, now) {
		over, t.refill.kind = true, unseen
	}
	t.opening.opens(w, now, over, t.probe && newer && left == 0)
	reset = t.opening.reset(reset, w.Resolution)
	if t.refill.kind != flows && w.Limit == t.limit {
		switch ahead := reset.Sub(t.reset); {
		case ahead < -slackOf(w) && !newer:
			return // speaks of a window that is over
		case ahead > slackOf(w) && !newer && left > t.left(now):
			return // or of one in which a bucket was not as empty yet
		case ahead > slackOf(w):
			over = true
		case !over:
			reset = t.sooner(reset, w)
		}
	}
	switch {
	case over:
		t.refill.restart()
	case newer:
		t.refill.learn(t, left, resetOf(w, now), now, f)
	case left >= t.left(now):
		if t.refill.kind == flows { // it was emptier later, and is full later
			reset = later(reset, t.reset)
		}
		t.reset, t.open = reset, max(t.open-1, 0) // that claim was counted before
		if t.refill.kind == drips {
			t.remaining = max(t.remaining-1, 0) // or after, when more had come back
		}
		return
	}
	if left >= w.Limit-1 && w.Limit > 1 && reset.Sub(now) < minScout {
		t.unused = min(t.unused+1, minUnused)
	} else if 2*left < w.Limit {
		t.unused = 0
	}
	t.limit, t.remaining, t.per, t.reset = max(w.Limit, left), left, w.Per, reset
	t.at, t.seen, t.open, t.probe = now, f.sent, f.open, false
	t.refill.mark(left, now, f.open)
}

// sooner returns the reset that is known by now: told roughly each is the true
// one or later, so the earliest is best.
func (t *told) sooner(reset time.Time, w throttle.RemoteLimit) time.Time {
	if w.Resolution == 0 || t.reset.After(reset) {
		return reset
	}
	return t.reset
}

// near reports whether w, received now, can be of the same window as t.
func (t *told) near(w throttle.RemoteLimit, now time.Time) bool {
	if !now.Before(t.reset) {
		return true // whatever it was is over
	}
	apart := resetOf(w, now).Sub(t.reset)
	return (t.refill.kind == flows || -2*slackOf(w) < apart && apart < 2*slackOf(w)) && w.Remaining <= t.left(now)
}

// left returns how many units are left as of now if no more are taken.
func (t *told) left(now time.Time) int64 {
	return t.remaining + t.refill.since(t.at, now, t.limit-t.remaining)
}

// accepted counts a claim that took a unit.
func (t *told) accepted() { t.refill.answered++ }

// spend counts claim n, whose response did not state what is left. accepted says that it was
// no rejection. It reports whether t is out of date: not even the response to the probe speaks
// of it, and it is a rejection.
func (t *told) spend(n uint64, accepted bool, now time.Time, f *flight) (outdated bool) {
	switch {
	case t.probe && n > t.seen:
		if !accepted || t.limit == 0 || t.counted.refuted {
			return true
		}
		t.began(now, f)
		return false
	case t.slots.are || t.probe && !t.counted.on:
		return false
	}
	t.remaining = max(t.remaining-1, 0)
	return false
}

// statesReset reports whether w states when units come back. Without that nothing can be
// said of other clients.
func statesReset(w throttle.RemoteLimit) bool { return w.ResetAfter > 0 || w.Per > 0 }

// probed adapts the time between probes of a limit without a stated reset to what the response
// to claim n states, if that was the probe.
func (t *told) probed(w throttle.RemoteLimit, n uint64, o throttle.Outcome) {
	if 2*w.Remaining >= w.Limit {
		t.pause = 0 // it has been idle
	}
	if !t.probe || n <= t.seen || statesReset(w) {
		return
	}
	if t.pause == 0 {
		t.pause = time.Second
	}
	switch {
	case o == throttle.Throttled:
		t.pause = min(t.pause+t.pause/2, maxProbePause)
	case w.Remaining >= manyLeft:
		t.pause = max(t.pause/2, minScout)
	}
}

const (
	maxProbePause = 8 * time.Second
	manyLeft      = 8 // units that a probe found: some servers restore whole units only, so a few should come back
)

// resetOf is the function resetOf for a response to a request of t.
func (t *told) resetOf(w throttle.RemoteLimit, now time.Time) time.Time {
	if t.pause > 0 && !statesReset(w) {
		return now.Add(t.pause)
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
