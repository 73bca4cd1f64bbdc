package quota

import (
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A rateLoop estimates the rate that a server accepts where it does not state one. It
// begins with evidence, see marks, and is dropped when it proves wrong or unneeded.
//
//	rate
//	  │ evidence            rejected ╳            ╱ dropped at 4 x the goal
//	  │  ╳                        ╱  │          ╱   when less than half is used
//	  │  │                     ╱     │        ╱ 2, 4, 8 % a second
//	  │  │                  ╱        ╰──────╯ goal: plateau of 10 s
//	  │  ╰── accepted so far
//	  └──────────────────────────────────────────────────▶ time
//
// Only responses to requests that were sent after the last change of the rate, and
// received two round trips after it, count: others say nothing of it. The rules and
// their figures are those of a prototype that was measured in virtual time against
// twenty kinds of servers; bench/healthy, bench/stray and the simulations of this
// package hold them to what they are for.
type rateLoop struct {
	cause throttle.Cause // whose responses count as rejections: CauseBare, or a suspected cause; zero: no loop
	rate  float64        // requests a second
	goal  float64        // where the rate grows to; +Inf: not known
	known bool           // two spans between rejections agreed on the goal
	next  time.Time      // when the next request may be sent

	sent            uint64    // number of the latest claim at the last change; only later ones count
	effect          time.Time // responses received before this say nothing of the last change
	recent          uint32    // the latest 20 responses that count, a bit each, 1 is a rejection; the newest is bit 0
	numRecent       int       // how many of recent there are, at most 20
	rejectionsInRow int       // rejections in a row

	span          acceptedSpan // accepted since the last rejection
	lastRate      float64      // rate of the span before it; 0: none
	idle          bool         // the span began after an idle time
	accepted      int          // accepted since the rate was last lowered, up to 40
	goalBefore    float64      // the goal that was given up when the rate came back to a known one; 0: none
	uselessCuts   int          // cuts to the accepted share without 40 accepted in between: at a limit one is enough
	atGoal        int          // rejections at a known goal without 40 accepted in between
	cuts          int          // cuts in a row that ended at the floor
	floorHalvings int          // how often the floor was halved

	stated         time.Duration // the longest Retry-After of a rejection since the loop began; 0: none
	growth         float64       // how fast the rate grows while no goal is known, in tenths of a step
	step           time.Time     // when it last grew
	sinceRejection float64       // seconds of growth since the last rejection
	plateau        float64       // seconds at the goal before the rate grows beyond it
	granted        int64         // since the last step
	trial          trial
	measured       bool    // it began with a rate that a learned window showed
	minPlateau     float64 // seconds of the plateau where each rejection costs a long stop; 0: as usual
}

// A acceptedSpan counts accepted requests since a moment.
type acceptedSpan struct {
	since, until time.Time // zero: nothing yet
	n            int64
}

func (s acceptedSpan) rate(now time.Time) float64 {
	return float64(s.n) / max(now.Sub(s.since).Seconds(), 1e-3)
}

const (
	minRate        = 1.0 / 60         // requests a second: no estimate is lower
	maxRate        = 1e9              // requests a second: no estimate is higher
	idleAfter      = time.Second      // without a request: what was accepted before says nothing of now
	growthIdle     = 5 * time.Second  // without a request: growth begins anew
	plateauFirst   = 10               // seconds
	plateauLast    = 20               // seconds, or 60 requests
	belowRejected  = 0.93             // of a rate that was rejected is safe to try
	belowStated    = 0.99             // of what was accepted until a stated end, where the window is known rather well
	belowSeen      = 0.98             // of a rate that was seen is safe: exactly at a limit is too fast
	agreeingSpans  = 0.07             // spans that differ by less agree
	minAccepted    = 8                // accepted requests that make a span credible
	maxUselessCuts = 3                // and half of the requests are still rejected: their rate does not matter
	manyAccepted   = 40               // accepted requests that end a series of rejections
	shortHold      = 10 * time.Second // that the server states to stop
	noEstimate     = time.Minute      // for a suspected cause whose trial failed
)

// An effect is what a response means for the loop that it was reported to.
type effect uint8

const (
	continueLoop effect = iota
	stopSending         // no requests until one probe has been accepted
	abandonLoop         // there is no limit that a rate would keep: none is estimated for a while
	endLoop             // the limit is another one now
)

// on reports whether there is an estimate.
func (l *rateLoop) on() bool { return l.cause != throttle.CauseUnknown }

// check reports whether a request may be sent as of now, and if not, how long until.
func (l *rateLoop) check(now time.Time) (wait time.Duration, ok bool) {
	if !l.on() {
		return 0, true
	}
	wait = l.next.Sub(now)
	return max(wait, 0), wait <= 0
}

// spend moves next by n requests, the first of which is sent now.
func (l *rateLoop) spend(n int64, now time.Time) {
	seconds := min(float64(n)/l.rate, maxDelay.Seconds())
	l.next = later(l.next, now).Add(time.Duration(seconds * 1e9))
	l.granted += n
}

// unspend gives back n requests that were not sent.
func (l *rateLoop) unspend(n int64) {
	if l.on() {
		l.next = l.next.Add(-time.Duration(min(float64(n)/l.rate, maxDelay.Seconds()) * 1e9))
	}
}

// beginAfterStop begins an estimate implied by rejections: probed is when the probe was sent that
// ended the stop, first what was accepted before, and stopped when the last stop began.
// hold is how long the server stated to stop, if it did: where that is short, what was
// accepted until its end is a goal, since each rejection would cost as much again.
func (l *rateLoop) beginAfterStop(first acceptedSpan, hold time.Duration, stopped, probed, now time.Time, floor float64, sent uint64) {
	rate := first.rate(now)
	if stopped.After(first.until) { // what was accepted had not come back yet when the last probe was rejected
		rate = first.rate(stopped.Add(now.Sub(stopped) / 2))
	}
	*l = rateLoop{cause: throttle.CauseUnstated, rate: max(rate, floor, minRate), goal: math.Inf(1), growth: 2, plateau: plateauFirst, step: now, sent: sent, effect: now}
	if first.n < minAccepted {
		l.growth = 10
	} else if hold > 0 && hold <= shortHold && !stopped.After(first.until) {
		l.rate = max(belowStated*first.rate(first.until.Add(hold)), floor, minRate)
		l.goal, l.stated = l.rate, hold
	}
	l.span = acceptedSpan{since: now}
	l.next = probed
	l.spend(1, probed)
}

// beginAt begins an estimate at a rate that was seen.
func (l *rateLoop) beginAt(rate float64, sent uint64, now time.Time) {
	rate = max(belowStated*rate, minRate)
	*l = rateLoop{cause: throttle.CauseUnstated, measured: true, rate: rate, goal: rate, growth: 5, plateau: plateauFirst, step: now, sent: sent, effect: now}
	l.span = acceptedSpan{since: now}
	l.next = now
	l.spend(3, now)
	l.granted = 0
}

// beginTrial begins an estimate for a suspected cause that made up a share of the
// responses, with a trial.
func (l *rateLoop) beginTrial(kind throttle.Cause, share, accepted, floor float64, rtt time.Duration, sent uint64, now time.Time) {
	*l = rateLoop{cause: kind, rate: max(0.7*accepted, floor, minRate), goal: math.Inf(1), growth: 5, plateau: plateauFirst, step: now}
	l.span = acceptedSpan{since: now}
	l.trial = trial{active: true, share: share, cuts: 1}
	l.next = now
	l.changed(rtt, sent, now)
}

// changed notes that the rate is another one now.
func (l *rateLoop) changed(rtt time.Duration, sent uint64, now time.Time) {
	l.sent, l.effect = sent, now.Add(2*rtt)
	l.sinceRejection, l.granted, l.step, l.accepted = 0, 0, now, 0
	l.next = later(l.next, now.Add(-time.Second)) // at most what a second of the old rate held back
}

// counts reports whether the response to claim n, received now, says something of the
// present rate.
func (l *rateLoop) counts(n uint64, now time.Time) bool {
	return n > l.sent && !now.Before(l.effect)
}

// addResponse adds a response that counts.
func (l *rateLoop) addResponse(bad bool) {
	l.recent <<= 1
	if bad {
		l.recent |= 1
		l.rejectionsInRow++
	} else {
		l.rejectionsInRow = 0
		l.accepted = min(l.accepted+1, manyAccepted)
		if l.accepted == manyAccepted {
			l.atGoal, l.goalBefore, l.uselessCuts = 0, 0, 0
		}
	}
	l.recent &= 1<<20 - 1
	l.numRecent = min(l.numRecent+1, 20)
}

// bad returns how many of the latest n responses that count were rejections, and how
// many there are.
func (l *rateLoop) bad(n int) (bad, all int) {
	all = min(n, l.numRecent)
	for i := range all {
		bad += int(l.recent >> i & 1)
	}
	return bad, all
}

// grow raises the rate, as a request is claimed now and the one before was sent at last.
// It reports whether the loop has become unneeded.
func (l *rateLoop) grow(now, last time.Time, accepted *acceptedRate) (unneeded bool) {
	span, known := time.Second, !math.IsInf(l.goal, 1)
	if known {
		span = min(max(time.Duration(3/l.rate*1e9), time.Second), growthIdle)
	}
	if now.Sub(last) > growthIdle+span {
		l.sinceRejection, l.step, l.granted = 0, now, 0
		return false
	}
	if now.Sub(l.step) < span || l.trial.active {
		return false
	}
	needed, plateau := float64(l.granted) > l.rate*now.Sub(l.step).Seconds()/2, l.plateau
	l.step, l.granted = now, 0
	l.sinceRejection += span.Seconds()
	if !l.known && l.cause != throttle.CauseUnstated {
		plateau = 2
	}
	switch {
	case !known:
		l.rate *= 1 + .1*max(l.sinceRejection-8, l.growth)
	case l.rate < .99*l.goal:
		l.rate += (l.goal - l.rate) / 2
	case l.sinceRejection > max(plateau, l.minPlateau):
		first := .01
		if plateau == 2 {
			first = .02
		}
		l.rate *= 1 + min(first*math.Pow(2, (l.sinceRejection-plateau)/span.Seconds()), .25)
	}
	goal := l.goal
	if !known {
		goal = 0
	}
	l.rate = min(l.rate, maxRate)
	return !needed && (known || l.sinceRejection >= 10) && l.rate > 4*max(goal, accepted.highest(now))
}

// rejected takes in a rejection that counts. best is the highest accepted rate of the
// last minute, rtt a round trip, and sent the number of the latest claim.
func (l *rateLoop) rejected(best float64, rtt time.Duration, sent uint64, now time.Time) effect {
	refused, implied := l.rate, l.cause == throttle.CauseUnstated
	eight, _ := l.bad(8)
	twenty, all := l.bad(20)
	accepted := l.accepted
	if l.goalBefore > 0 && l.rejectionsInRow < 2 && accepted < manyAccepted { // the known rate was right after all
		l.goal, l.rate, l.goalBefore = l.goalBefore, l.goalBefore, 0
		l.restart(rtt, sent, now)
		return continueLoop
	}
	switch {
	case l.rejectionsInRow >= 2 && implied:
		if math.IsInf(l.goal, 1) && l.measured {
			l.goal = belowRejected * refused
			l.rate = l.goal
		}
		l.restart(rtt, sent, now)
		return stopSending
	case l.rejectionsInRow >= 2:
		if l.rejectionsInRow == 2 {
			l.goal *= .95
		}
		l.rate = max(l.rate/2, l.finiteGoal()/8, minRate)
	case eight >= 4:
		if l.uselessCuts++; l.uselessCuts > maxUselessCuts {
			return abandonLoop
		}
		rate := .95 * l.rate * float64(all-twenty) / float64(max(all, 1))
		if !l.lower(rate, best) {
			l.floorHalvings++
		}
		l.goal, l.known = l.rate/.95, false
	case l.known && l.rate > 1.005*l.goal:
		l.returnToGoal(now)
		l.restart(3*rtt/2, sent, now)
		return continueLoop
	case l.known && 5*twenty < max(all, 5):
		if l.atGoal++; l.atGoal >= 5 && implied {
			return endLoop
		} else if l.atGoal >= 5 {
			return abandonLoop
		}
		l.goal *= belowRejected
		l.rate = min(l.rate, l.goal)
	default:
		l.cut(refused, float64(twenty)/float64(max(all, 1)), best, now)
	}
	l.restart(rtt, sent, now)
	return continueLoop
}

// restart begins a new span, as the rate has changed.
func (l *rateLoop) restart(rtt time.Duration, sent uint64, now time.Time) {
	l.span, l.idle = acceptedSpan{since: now}, false
	l.changed(rtt, sent, now)
}

// finiteGoal returns the goal, or the rate if there is none.
func (l *rateLoop) finiteGoal() float64 {
	if math.IsInf(l.goal, 1) {
		return l.rate
	}
	return l.goal
}

// returnToGoal lowers a rate that grew beyond a known goal to that goal again, or to what
// was seen meanwhile if that was more.
func (l *rateLoop) returnToGoal(now time.Time) {
	refused, seen := l.rate, belowSeen*l.span.rate(now)
	if !l.idle && l.span.n >= manyAccepted && seen > l.goal {
		l.goal = min(seen, l.rate)
	}
	if refused > 1.5*l.goal {
		l.goalBefore, l.goal = l.goal, .7*refused
	}
	l.rate = l.goal
	l.plateau = min(2*l.plateau, max(plateauLast, 60/l.rate))
}

// cut lowers the rate after a rejection that nothing explains. share is that of
// rejections in the latest responses.
func (l *rateLoop) cut(refused, share, best float64, now time.Time) {
	was, seen := l.goal, l.span.rate(now)
	l.goal = belowRejected * refused
	rate := belowRejected * l.goal
	if l.span.n >= minAccepted {
		if l.lastRate > 0 && math.Abs(seen-l.lastRate) < agreeingSpans*seen && now.Sub(l.span.since) >= time.Second {
			l.goal, l.known = min(l.goal, belowSeen*(seen+l.lastRate)/2), true
		}
		if l.stated > 0 && l.span.n >= 20 {
			l.goal = min(l.goal, 1.15*seen)
		}
		least := refused / 4
		if math.IsInf(was, 1) && share < .2 {
			least = .6 * refused
		}
		rate = max(min(l.goal, belowSeen*seen), least)
		l.lastRate = seen
	}
	if l.lower(rate, best) {
		l.cuts = 0
		return
	}
	if l.cuts++; l.cuts >= 2 && share >= .2 || l.cuts >= 4 {
		l.floorHalvings, l.cuts = l.floorHalvings+1, 0
	}
}

// lower sets a lower rate, but not one below the floor: half of the highest rate
// accepted in the last minute, halved again for each time that cuts at it did not help.
// It reports whether the rate is above the floor.
func (l *rateLoop) lower(rate, best float64) bool {
	floor := math.Ldexp(best/2, -min(l.floorHalvings, 30))
	l.rate = max(rate, min(floor, l.rate), minRate)
	return rate >= floor
}

// A trial tells whether a lower rate makes a suspected failure rarer. If it does not,
// the failures have another reason.
type trial struct {
	active bool
	share  float64 // of failures before
	cuts   int     // how many times the rate was cut
	n      int     // responses that count
	bad    int     // of them, failures
	good   int     // successes in a row
}

// judge ends the trial of a suspected cause, or lowers the rate again.
func (l *rateLoop) judge(bad bool, rtt time.Duration, sent uint64, now time.Time) effect {
	t := &l.trial
	t.n++
	t.good++
	if bad {
		t.bad, t.good = t.bad+1, 0
	}
	switch {
	case float64(t.good) >= 3/t.share, t.n >= 20 && float64(t.bad) <= t.share/2*float64(t.n):
		l.trial = trial{}
		return continueLoop
	case t.n < 6, t.bad < t.n && t.n < 20:
		return continueLoop
	case t.cuts >= 3:
		return abandonLoop
	}
	l.rate = max(l.rate/4, minRate)
	l.trial = trial{active: true, share: t.share, cuts: t.cuts + 1}
	l.changed(rtt, sent, now)
	return continueLoop
}
