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

	sent   uint64    // number of the latest claim at the last change; only later ones count
	effect time.Time // responses received before this say nothing of the last change
	recent uint32    // the latest 20 responses that count, a bit each, 1 is a rejection; the newest is bit 0
	n      int       // how many of recent there are, at most 20
	run    int       // rejections in a row

	span    tally   // accepted since the last rejection
	seen    float64 // rate of the span before it; 0: none
	idle    bool    // the span began after an idle time
	since   int     // accepted since the rate was last lowered, up to 40
	before  float64 // the goal that was given up when the rate came back to a known one; 0: none
	futile  int     // cuts to the accepted share without 40 accepted in between: at a limit one is enough
	strikes int     // rejections at a known goal without 40 accepted in between
	cuts    int     // cuts in a row that ended at the floor
	low     int     // how often the floor was halved

	stated   time.Duration // the longest Retry-After of a rejection since the loop began; 0: none
	eager    float64       // how fast the rate grows while no goal is known, in tenths of a step
	step     time.Time     // when it last grew
	calm     float64       // seconds of growth since the last rejection
	plateau  float64       // seconds at the goal before the rate grows beyond it
	granted  int64         // since the last step
	trial    trial
	measured bool    // it began with a rate that a learned window showed
	longest  float64 // seconds of the plateau where each rejection costs a long stop; 0: as usual
}

// A tally counts accepted requests since a moment.
type tally struct {
	since, until time.Time // zero: nothing yet
	ok           int64
}

func (t tally) rate(now time.Time) float64 {
	return float64(t.ok) / max(now.Sub(t.since).Seconds(), 1e-3)
}

const (
	minRate      = 1.0 / 60         // requests a second: no estimate is lower
	maxRate      = 1e9              // requests a second: no estimate is higher
	idleAfter    = time.Second      // without a request: what was accepted before says nothing of now
	calmIdle     = 5 * time.Second  // without a request: growth begins anew
	plateauFirst = 10               // seconds
	plateauLast  = 20               // seconds, or 60 requests
	below        = 0.93             // of a rate that was rejected is safe to try
	statedBelow  = 0.99             // of what was accepted until a stated end, where the window is known rather well
	justBelow    = 0.98             // of a rate that was seen is safe: exactly at a limit is too fast
	agree        = 0.07             // spans that differ by less agree
	enough       = 8                // accepted requests that make a span credible
	futileCuts   = 3                // and half of the requests are still rejected: their rate does not matter
	manyAccepted = 40               // accepted requests that end a series of rejections
	shortHold    = 10 * time.Second // that the server states to stop
	noEstimate   = time.Minute      // for a suspected cause whose trial failed
)

// An effect is what a response means for the loop that it was reported to.
type effect uint8

const (
	goOn   effect = iota
	stop          // no requests until one probe has been accepted
	drop          // there is no limit that a rate would keep: none is estimated for a while
	forget        // the limit is another one now
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

// open begins an estimate implied by rejections: probed is when the probe was sent that
// ended the stop, first what was accepted before, and stopped when the last stop began.
// hold is how long the server stated to stop, if it did: where that is short, what was
// accepted until its end is a goal, since each rejection would cost as much again.
func (l *rateLoop) open(first tally, hold time.Duration, stopped, probed, now time.Time, floor float64, sent uint64) {
	rate := first.rate(now)
	if stopped.After(first.until) { // what was accepted had not come back yet when the last probe was rejected
		rate = first.rate(stopped.Add(now.Sub(stopped) / 2))
	}
	*l = rateLoop{cause: throttle.CauseUnstated, rate: max(rate, floor, minRate), goal: math.Inf(1), eager: 2, plateau: plateauFirst, step: now, sent: sent, effect: now}
	if first.ok < enough {
		l.eager = 10
	} else if hold > 0 && hold <= shortHold && !stopped.After(first.until) {
		l.rate = max(statedBelow*first.rate(first.until.Add(hold)), floor, minRate)
		l.goal, l.stated = l.rate, hold
	}
	l.span = tally{since: now}
	l.next = probed
	l.spend(1, probed)
}

// begin begins an estimate at a rate that was seen.
func (l *rateLoop) begin(rate float64, sent uint64, now time.Time) {
	rate = max(statedBelow*rate, minRate)
	*l = rateLoop{cause: throttle.CauseUnstated, measured: true, rate: rate, goal: rate, eager: 5, plateau: plateauFirst, step: now, sent: sent, effect: now}
	l.span = tally{since: now}
	l.next = now
	l.spend(3, now)
	l.granted = 0
}

// suspect begins an estimate for a suspected cause that made up a share of the
// responses, with a trial.
func (l *rateLoop) suspect(kind throttle.Cause, share, accepted, floor float64, rtt time.Duration, sent uint64, now time.Time) {
	*l = rateLoop{cause: kind, rate: max(0.7*accepted, floor, minRate), goal: math.Inf(1), eager: 5, plateau: plateauFirst, step: now}
	l.span = tally{since: now}
	l.trial = trial{on: true, share: share, cuts: 1}
	l.next = now
	l.changed(rtt, sent, now)
}

// changed notes that the rate is another one now.
func (l *rateLoop) changed(rtt time.Duration, sent uint64, now time.Time) {
	l.sent, l.effect = sent, now.Add(2*rtt)
	l.calm, l.granted, l.step, l.since = 0, 0, now, 0
	l.next = later(l.next, now.Add(-time.Second)) // at most what a second of the old rate held back
}

// counts reports whether the response to claim n, received now, says something of the
// present rate.
func (l *rateLoop) counts(n uint64, now time.Time) bool {
	return n > l.sent && !now.Before(l.effect)
}

// note adds a response that counts.
func (l *rateLoop) note(bad bool) {
	l.recent <<= 1
	if bad {
		l.recent |= 1
		l.run++
	} else {
		l.run = 0
		l.since = min(l.since+1, manyAccepted)
		if l.since == manyAccepted {
			l.strikes, l.before, l.futile = 0, 0, 0
		}
	}
	l.recent &= 1<<20 - 1
	l.n = min(l.n+1, 20)
}

// bad returns how many of the latest n responses that count were rejections, and how
// many there are.
func (l *rateLoop) bad(n int) (bad, all int) {
	all = min(n, l.n)
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
		span = min(max(time.Duration(3/l.rate*1e9), time.Second), calmIdle)
	}
	if now.Sub(last) > calmIdle+span {
		l.calm, l.step, l.granted = 0, now, 0
		return false
	}
	if now.Sub(l.step) < span || l.trial.on {
		return false
	}
	needed, plateau := float64(l.granted) > l.rate*now.Sub(l.step).Seconds()/2, l.plateau
	l.step, l.granted = now, 0
	l.calm += span.Seconds()
	if !l.known && l.cause != throttle.CauseUnstated {
		plateau = 2
	}
	switch {
	case !known:
		l.rate *= 1 + .1*max(l.calm-8, l.eager)
	case l.rate < .99*l.goal:
		l.rate += (l.goal - l.rate) / 2
	case l.calm > max(plateau, l.longest):
		first := .01
		if plateau == 2 {
			first = .02
		}
		l.rate *= 1 + min(first*math.Pow(2, (l.calm-plateau)/span.Seconds()), .25)
	}
	goal := l.goal
	if !known {
		goal = 0
	}
	l.rate = min(l.rate, maxRate)
	return !needed && (known || l.calm >= 10) && l.rate > 4*max(goal, accepted.highest(now))
}

// rejected takes in a rejection that counts. best is the highest accepted rate of the
// last minute, rtt a round trip, and sent the number of the latest claim.
func (l *rateLoop) rejected(best float64, rtt time.Duration, sent uint64, now time.Time) effect {
	refused, implied := l.rate, l.cause == throttle.CauseUnstated
	eight, _ := l.bad(8)
	twenty, all := l.bad(20)
	accepted := l.since
	if l.before > 0 && l.run < 2 && accepted < manyAccepted { // the known rate was right after all
		l.goal, l.rate, l.before = l.before, l.before, 0
		l.restart(rtt, sent, now)
		return goOn
	}
	switch {
	case l.run >= 2 && implied:
		if math.IsInf(l.goal, 1) && l.measured {
			l.goal = below * refused
			l.rate = l.goal
		}
		l.restart(rtt, sent, now)
		return stop
	case l.run >= 2:
		if l.run == 2 {
			l.goal *= .95
		}
		l.rate = max(l.rate/2, l.finiteGoal()/8, minRate)
	case eight >= 4:
		if l.futile++; l.futile > futileCuts {
			return drop
		}
		rate := .95 * l.rate * float64(all-twenty) / float64(max(all, 1))
		if !l.lower(rate, best) {
			l.low++
		}
		l.goal, l.known = l.rate/.95, false
	case l.known && l.rate > 1.005*l.goal:
		l.comeBack(now)
		l.restart(3*rtt/2, sent, now)
		return goOn
	case l.known && 5*twenty < max(all, 5):
		if l.strikes++; l.strikes >= 5 && implied {
			return forget
		} else if l.strikes >= 5 {
			return drop
		}
		l.goal *= below
		l.rate = min(l.rate, l.goal)
	default:
		l.cut(refused, float64(twenty)/float64(max(all, 1)), best, now)
	}
	l.restart(rtt, sent, now)
	return goOn
}

// restart begins a new span, as the rate has changed.
func (l *rateLoop) restart(rtt time.Duration, sent uint64, now time.Time) {
	l.span, l.idle = tally{since: now}, false
	l.changed(rtt, sent, now)
}

// finiteGoal returns the goal, or the rate if there is none.
func (l *rateLoop) finiteGoal() float64 {
	if math.IsInf(l.goal, 1) {
		return l.rate
	}
	return l.goal
}

// comeBack lowers a rate that grew beyond a known goal to that goal again, or to what
// was seen meanwhile if that was more.
func (l *rateLoop) comeBack(now time.Time) {
	refused, seen := l.rate, justBelow*l.span.rate(now)
	if !l.idle && l.span.ok >= manyAccepted && seen > l.goal {
		l.goal = min(seen, l.rate)
	}
	if refused > 1.5*l.goal {
		l.before, l.goal = l.goal, .7*refused
	}
	l.rate = l.goal
	l.plateau = min(2*l.plateau, max(plateauLast, 60/l.rate))
}

// cut lowers the rate after a rejection that nothing explains. share is that of
// rejections in the latest responses.
func (l *rateLoop) cut(refused, share, best float64, now time.Time) {
	was, seen := l.goal, l.span.rate(now)
	l.goal = below * refused
	rate := below * l.goal
	if l.span.ok >= enough {
		if l.seen > 0 && math.Abs(seen-l.seen) < agree*seen && now.Sub(l.span.since) >= time.Second {
			l.goal, l.known = min(l.goal, justBelow*(seen+l.seen)/2), true
		}
		if l.stated > 0 && l.span.ok >= 20 {
			l.goal = min(l.goal, 1.15*seen)
		}
		least := refused / 4
		if math.IsInf(was, 1) && share < .2 {
			least = .6 * refused
		}
		rate = max(min(l.goal, justBelow*seen), least)
		l.seen = seen
	}
	if l.lower(rate, best) {
		l.cuts = 0
		return
	}
	if l.cuts++; l.cuts >= 2 && share >= .2 || l.cuts >= 4 {
		l.low, l.cuts = l.low+1, 0
	}
}

// lower sets a lower rate, but not one below the floor: half of the highest rate
// accepted in the last minute, halved again for each time that cuts at it did not help.
// It reports whether the rate is above the floor.
func (l *rateLoop) lower(rate, best float64) bool {
	floor := math.Ldexp(best/2, -min(l.low, 30))
	l.rate = max(rate, min(floor, l.rate), minRate)
	return rate >= floor
}
