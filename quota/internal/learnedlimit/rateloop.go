package learnedlimit

import (
	"math"
	"math/bits"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// A RateLoop estimates the rate that a server accepts if it does not state one. It begins after a hold, or at the
// rate that a RateTest has measured, and ends when it proves to be wrong or is not needed:
//
//	rate
//	  │ begins              rejected x            / ended at 4 x the goal
//	  │  x                        /  │          /   when less than half is used
//	  │  │                     /     │        / 2, 4, 8 % per second
//	  │  │                  /        ╰──────╯ goal, for a plateau of 10 s
//	  │  ╰── accepted so far
//	  └──────────────────────────────────────────────────▶ time
//
// Only responses count to requests that were sent after the last change of the rate and that arrive
// two round trips after it, because earlier ones do not show its effect. The goal is the highest rate
// that is expected to be accepted. Updates of the rate r:
//
//	no goal, each second             r += r growth
//	below the goal, each step        r += (goal - r) / 2
//	after the plateau, each step     r += r min(1 % 2^(steps since the plateau), 25 %)
//	rejected, see rejected           r is lowered to what was accepted, but not below a floor
//
// The rules and constants are those of a prototype that was measured in simulated time with twenty
// kinds of servers.
// The zero RateLoop is no estimate. It is not safe for concurrent use.
type RateLoop struct {
	Cause     throttle.Cause // cause of the responses that count as rejections; CauseUnknown: there is no estimate
	Rate      float64        // requests per second
	Goal      float64        // requests per second; +Inf: not known
	confirmed bool           // two spans between rejections agreed on the goal, or a bucket and its window did
	Next      time.Time      // when the next request may be sent

	lastSent        uint64    // number of the latest claim at the last change of the rate; only later ones count
	effectAt        time.Time // when responses begin to show the effect of that change
	recent          uint32    // latest responses that count, a bit each: 1 is a rejection, bit 0 is the latest response
	numRecent       int       // number of bits in use, at most maxRecent
	rejectionsInRow int       // latest responses that were rejections

	Span             AcceptedSpan // requests accepted since the last rejection
	lastRate         float64      // accepted requests per second in the span before; 0: not known
	accepted         int          // requests accepted since the rate was last lowered, at most manyAccepted
	uselessCuts      int          // cuts to the accepted share without manyAccepted requests since; at a limit, one is enough
	rejectionsAtGoal int          // rejections at a confirmed goal without manyAccepted requests since
	floorHalvings    int          // times the floor was halved

	stated         bool      // a rejection stated to wait
	growth         float64   // growth per step while there is no goal, as a part of the rate
	grownAt        time.Time // when the latest step of growth was made
	sinceRejection float64   // duration of the steps since the last rejection, in seconds
	plateau        float64   // time at the goal before the rate grows beyond it, in seconds
	granted        int64     // requests since grownAt
}

// An AcceptedSpan counts accepted requests from a moment on.
type AcceptedSpan struct {
	Since, Until time.Time // zero: not begun; not ended
	N            int64
}

// Rate returns accepted requests per second until now.
func (s AcceptedSpan) Rate(now time.Time) float64 {
	return float64(s.N) / max(now.Sub(s.Since).Seconds(), 1e-3)
}

const (
	maxPause       = time.Second      // pause after a rejection at most
	minRate        = 1.0 / 60         // lowest estimate, in requests per second
	maxRecent      = 20               // latest responses from which the share of rejections is computed
	IdleAfter      = time.Second      // time without a request after which earlier acceptances say nothing about the present rate
	growthIdle     = 5 * time.Second  // time without a request after which growth begins again, and longest step of growth
	plateauFirst   = 10               // seconds, the first time
	plateauLast    = 20               // seconds, or the time of 60 requests if that is longer
	longPlateau    = 80               // seconds, where a rejection stops all requests for so long that the rate is lowered more
	belowRejected  = 0.93             // part of a rejected rate that is expected to be accepted
	belowStop      = 0.65             // part of it where a rejection stops all requests for long: the rate grows by half in a second at most
	belowWindow    = 0.99             // part of the rate of a window that is used: its length is known well
	belowMeasured  = 0.98             // part of a measured rate that is used: exactly at a limit is too fast
	agreeingSpans  = 0.07             // difference of the rates of two spans that agree, relative to the later one
	minAccepted    = 8                // accepted requests that make the rate of a span credible
	pauseRequests  = 5                // half requests, whose time passes after a rejection before the next one: two, and a half because counters advance in steps
	statedRequests = minMeasures      // requests at a new rate that a wait stated before may explain, if they are rejected
	maxUselessCuts = 3                // cuts, after which rejections do not depend on the rate if half of the responses still are
	manyAccepted   = 40               // accepted requests that end a series of rejections
	maxAtGoal      = 5                // rejections at a confirmed goal, after which the loop ends
	shortHold      = 10 * time.Second // longest stated hold whose end gives a rate
	NoEstimate     = time.Minute      // time without an estimate for a cause after a loop for it was wrong
)

// plateauOf returns the minimum plateau in seconds where a rejection stops all requests for the time
// stop: so long that less than a twentieth of the time is lost.
func plateauOf(stop time.Duration) float64 { return min(20*stop.Seconds(), 300) }

// A LoopAction is what follows from a response that was reported to a RateLoop.
type LoopAction uint8

const (
	ContinueLoop LoopAction = iota // nothing
	StopSending                    // no requests until one probe has been accepted
	AbandonLoop                    // rejections do not depend on the rate: no estimate for NoEstimate
	EndLoop                        // the limit has changed: the loop ends, and another may begin
)

// On reports whether there is an estimate.
func (l *RateLoop) On() bool { return l.Cause != throttle.CauseUnknown }

// newRateLoop returns a loop that begins now at rate. lastSent is the number of the latest claim.
func newRateLoop(cause throttle.Cause, rate, goal, growth float64, lastSent uint64, now time.Time) RateLoop {
	return RateLoop{
		Cause: cause, Rate: rate, Goal: goal, growth: growth, plateau: plateauFirst,
		Span: AcceptedSpan{Since: now}, Next: now, grownAt: now, effectAt: now, lastSent: lastSent,
	}
}

// BeginAfterStop begins an estimate that rejections imply, after a hold that ended with the test that
// was sent at probed. first counts what was accepted before the hold, and stopped is when the latest
// rejection began or extended it. floor is the minimum rate, and lastSent the number of the latest claim.
func (l *RateLoop) BeginAfterStop(first AcceptedSpan, stopped, probed, now time.Time, floor float64, lastSent uint64) {
	rate := first.Rate(now)
	if stopped.After(first.Until) { // no units had come back when the last probe was rejected
		rate = first.Rate(stopped.Add(now.Sub(stopped) / 2))
	}
	*l = newRateLoop(throttle.CauseUnstated, max(rate, floor, minRate), math.Inf(1), .2, lastSent, now)
	if first.N < minAccepted {
		l.growth = 1
	}
	l.Next = probed
	l.Spend(1, probed)
}

// BeginAt begins an estimate for a cause at a measured rate. lastSent is the number of the latest claim.
func (l *RateLoop) BeginAt(cause throttle.Cause, rate float64, lastSent uint64, now time.Time) {
	rate = max(belowWindow*rate, minRate)
	*l = newRateLoop(cause, rate, rate, 0, lastSent, now)
	l.Spend(1, now)
	l.granted = 0
}

// CountFrom is called when an estimate has begun now and a rejection has stated to wait until then. Responses that arrive
// before then do not count, because that wait explains a rejection; but after the time of statedRequests all count.
func (l *RateLoop) CountFrom(until, now time.Time) {
	l.effectAt = ticks.Later(l.effectAt, now.Add(min(until.Sub(now), l.TimeOf(statedRequests))))
}

// Check reports whether a request may be sent as of now. If not, wait is the time until it may.
func (l *RateLoop) Check(now time.Time) (wait time.Duration, ok bool) {
	if !l.On() {
		return 0, true
	}
	wait = l.Next.Sub(now)
	return max(wait, 0), wait <= 0
}

// Spend moves next by n requests, the first of which is sent now.
func (l *RateLoop) Spend(n int64, now time.Time) {
	l.Next = ticks.Later(l.Next, now).Add(l.TimeOf(n))
	l.granted += n
}

// Unspend moves next back by n requests that were not sent.
func (l *RateLoop) Unspend(n int64) {
	if l.On() {
		l.Next = l.Next.Add(-l.TimeOf(n))
	}
}

// TimeOf returns the time that n requests take at the rate, at most headers.MaxDelay.
func (l *RateLoop) TimeOf(n int64) time.Duration {
	return time.Duration(min(float64(n)/l.Rate, headers.MaxDelay.Seconds()) * 1e9)
}

// Restored records that l is as it was before a trial raised it.
func (l *RateLoop) Restored(rtt time.Duration, lastSent uint64, now time.Time) {
	if l.On() {
		l.changed(rtt, lastSent, now)
		l.Span = AcceptedSpan{Since: now}
		l.Next = ticks.Later(l.Next, now)
	}
}

// Double doubles the rate.
func (l *RateLoop) Double() {
	l.Rate *= 2
	if l.hasGoal() {
		l.Goal, l.confirmed = max(l.Rate, 2*l.Goal), false
	}
}

// hasGoal reports whether the goal is known.
func (l *RateLoop) hasGoal() bool { return !math.IsInf(l.Goal, 1) }

// FiniteGoal returns the goal, or the rate if it is not known.
func (l *RateLoop) FiniteGoal() float64 {
	if l.hasGoal() {
		return l.Goal
	}
	return l.Rate
}

// Grow raises the rate if a step has passed, when a request is claimed now. last is when the latest
// request was granted. It reports whether the loop is not needed: less than half of the rate was used,
// and it is four times the goal and what was ever accepted in the last minute.
func (l *RateLoop) Grow(now, last time.Time, accepted *AcceptedRate) (unneeded bool) {
	step, limit := time.Second, accepted.Highest(now)
	if l.hasGoal() {
		step, limit = min(max(l.TimeOf(3), time.Second), growthIdle), max(limit, l.Goal)
	}
	if now.Sub(last) > growthIdle+step {
		l.sinceRejection, l.grownAt, l.granted = 0, now, 0
		return false
	}
	if now.Sub(l.grownAt) < step {
		return false
	}
	needed := float64(l.granted) > l.Rate*now.Sub(l.grownAt).Seconds()/2
	l.grownAt, l.granted = now, 0
	l.sinceRejection += step.Seconds()
	l.Rate = l.grownRate(step)
	return !needed && (l.hasGoal() || l.sinceRejection >= 10) && l.Rate > 4*limit
}

// grownRate returns the rate after a step of growth.
func (l *RateLoop) grownRate(step time.Duration) float64 {
	switch {
	case !l.hasGoal():
		return l.Rate * (1 + l.growth)
	case l.Rate < .99*l.Goal:
		return l.Rate + (l.Goal-l.Rate)/2
	case l.sinceRejection > l.plateau:
		return l.Rate * (1 + min(.01*math.Pow(2, (l.sinceRejection-l.plateau)/step.Seconds()), .25))
	}
	return l.Rate
}

// Counts reports whether the response to claim n, received now, shows the effect of the present rate.
func (l *RateLoop) Counts(n uint64, now time.Time) bool {
	return n > l.lastSent && !now.Before(l.effectAt)
}

// AddResponse applies a response that counts. rejected is set if it is a rejection, or a failure of the
// cause of the loop. accepted is the rate that was accepted in the last minute, rtt the round trip time,
// and lastSent the number of the latest claim.
func (l *RateLoop) AddResponse(rejected bool, accepted *AcceptedRate, rtt time.Duration, lastSent uint64, now time.Time) LoopAction {
	if l.count(rejected); !rejected {
		return ContinueLoop
	}
	return l.rejected(accepted.Highest(now), rtt, lastSent, now)
}

// AddStatedWait is AddResponse for a rejection that stated to wait for retryAfter, and so began a hold.
func (l *RateLoop) AddStatedWait(retryAfter time.Duration, accepted *AcceptedRate, rtt time.Duration, lastSent uint64, now time.Time) LoopAction {
	l.count(true)
	l.stated, l.plateau = true, max(l.plateau, plateauOf(retryAfter))
	return l.rejected(accepted.Highest(now), rtt, lastSent, now)
}

// BeginSpan begins the span s: what was accepted before shows nothing about the rate any more.
func (l *RateLoop) BeginSpan(s AcceptedSpan) { l.Span, l.lastRate = s, 0 }

// DelayFirst delays the next request by a part of the time between two, random in [0, 1): other
// processes, which learn at the same time that the loop goes on, send theirs at other times.
func (l *RateLoop) DelayFirst(random float64, now time.Time) {
	l.Next = now.Add(time.Duration(random / l.Rate * 1e9))
}

// count records a response that counts.
func (l *RateLoop) count(rejected bool) {
	l.recent = l.recent << 1 & (1<<maxRecent - 1)
	l.numRecent = min(l.numRecent+1, maxRecent)
	if rejected {
		l.recent |= 1
		l.rejectionsInRow++
		return
	}
	l.rejectionsInRow = 0
	l.accepted = min(l.accepted+1, manyAccepted)
	if l.accepted == manyAccepted {
		l.rejectionsAtGoal, l.uselessCuts = 0, 0
	}
}

// rejections returns how many of the latest n responses that count were rejections, and how many of
// them there are.
func (l *RateLoop) rejections(n int) (rejected, all int) {
	all = min(n, l.numRecent)
	return bits.OnesCount32(l.recent & (1<<all - 1)), all
}

// rejected lowers the rate after a rejection that counts. highest is the highest accepted rate of the
// last minute, rtt the round trip time, and lastSent the number of the latest claim.
func (l *RateLoop) rejected(highest float64, rtt time.Duration, lastSent uint64, now time.Time) (action LoopAction) {
	implied := l.Cause == throttle.CauseUnstated
	ofEight, _ := l.rejections(8)
	rejected, all := l.rejections(maxRecent)
	share := float64(rejected) / float64(max(all, 1))
	switch {
	case l.rejectionsInRow >= 2 && implied:
		action = StopSending
	case l.rejectionsInRow >= 2:
		if l.rejectionsInRow == 2 {
			l.Goal *= .95
		}
		l.Rate = max(l.Rate/2, l.FiniteGoal()/8, minRate)
	case ofEight >= 4:
		if l.uselessCuts++; l.uselessCuts > maxUselessCuts {
			return AbandonLoop
		}
		if !l.lowerRate(.95*l.Rate*float64(all-rejected)/float64(max(all, 1)), highest) {
			l.floorHalvings++
		}
		l.Goal, l.confirmed = l.Rate/.95, false
	case l.confirmed && l.Rate > 1.005*l.Goal:
		l.returnToGoal(now)
	case l.confirmed && 5*rejected < max(all, 5):
		if l.rejectionsAtGoal++; l.rejectionsAtGoal >= maxAtGoal {
			if implied {
				return EndLoop
			}
			return AbandonLoop
		}
		l.Goal *= belowRejected
		l.Rate = min(l.Rate, l.Goal)
	default:
		l.lowerGoal(share, highest, now)
	}
	accepted := l.Span.N
	l.Span = AcceptedSpan{Since: now}
	l.changed(rtt, lastSent, now)
	if l.Cause == throttle.CauseUnstated && accepted >= minAccepted {
		l.pause(now)
	}
	return action
}

// pause delays the next request after a rejection at a rate that is nearly accepted. Servers that count
// rejected requests, too, accept the next one only after the time of two requests. A stop, which follows
// two rejections in a row, would take longer. A part of the pause is not counted in the span: a server
// without a burst does not accept more requests later because of it.
func (l *RateLoop) pause(now time.Time) {
	pause := min(pauseRequests*l.TimeOf(1)/2, maxPause)
	l.Next = ticks.Later(l.Next, now.Add(pause))
	l.Span.Since = now.Add(2 * pause / pauseRequests)
}

// changed records that the rate has changed.
func (l *RateLoop) changed(rtt time.Duration, lastSent uint64, now time.Time) {
	l.lastSent, l.effectAt = lastSent, now.Add(2*rtt)
	l.sinceRejection, l.granted, l.grownAt, l.accepted = 0, 0, now, 0
	l.Next = ticks.Later(l.Next, now) // to wait for the response was not to be idle
}

// returnToGoal lowers a rate that grew beyond a confirmed goal to that goal, or to the rate that was
// accepted meanwhile if that is higher. If the rate grew far beyond the goal, the limit was raised: most
// of the rate is the new goal.
func (l *RateLoop) returnToGoal(now time.Time) {
	if measured := belowMeasured * l.Span.Rate(now); l.Span.N >= manyAccepted && measured > l.Goal {
		l.Goal = min(measured, l.Rate)
	}
	if l.Rate > 1.5*l.Goal {
		l.Goal = .7 * l.Rate
	}
	l.Rate = l.Goal
	l.plateau = max(l.plateau, min(2*l.plateau, max(plateauLast, 60/l.Rate)))
}

// lowerGoal lowers goal and rate after a rejection at a rate without a confirmed goal. share is the
// part of the latest responses that were rejections, and highest the highest accepted rate of the last
// minute.
func (l *RateLoop) lowerGoal(share, highest float64, now time.Time) {
	hadGoal, rejectedRate, measured := l.hasGoal(), l.Rate, l.Span.Rate(now)
	l.Goal = belowRejected * rejectedRate
	if l.plateau >= longPlateau {
		l.Goal = belowStop * rejectedRate
	}
	rate := belowRejected * l.Goal
	if l.Span.N >= minAccepted {
		if l.lastRate > 0 && math.Abs(measured-l.lastRate) < agreeingSpans*measured && now.Sub(l.Span.Since) >= time.Second {
			l.Goal, l.confirmed = min(l.Goal, belowMeasured*(measured+l.lastRate)/2), true
		}
		if l.stated && l.Span.N >= 20 {
			l.Goal = min(l.Goal, 1.15*measured)
		}
		minimum := rejectedRate / 4
		if !hadGoal && share < .2 {
			minimum = .6 * rejectedRate
		}
		rate = max(min(l.Goal, belowMeasured*measured), minimum)
		l.lastRate = measured
	}
	l.lowerRate(rate, highest)
}

// lowerRate lowers the rate, but not below the floor: half of the highest rate that was accepted in the
// last minute, halved again each time that cuts at the floor did not help. It reports whether rate is
// above the floor.
func (l *RateLoop) lowerRate(rate, highest float64) bool {
	floor := math.Ldexp(highest/2, -min(l.floorHalvings, 30))
	l.Rate = max(rate, min(floor, l.Rate), minRate)
	return rate >= floor
}
