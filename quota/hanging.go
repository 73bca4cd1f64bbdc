package quota

import (
	"time"

	"github.com/heed-go/heed/throttle"
)

// A hangState is what is known of requests without a response to which the server may never respond,
// because it rejects requests in that way: HAProxy does so with tarpit and silent-drop, and some
// firewalls drop packets. A request hangs if its response would be late, see slowResponses, and no other
// response has arrived for as long.
//
//	accepted   ||||||||            ▏           ||  |  |  |  |  |
//	hang               |||| late   |     |     |
//	                       ├──────┤stop, probes ├ learned rate
//
// If requests hang as slow start admits no more of them, although the server was healthy before, they
// are suspected to be rejected. Then requests stop until a probe is accepted in time, and a learned rate
// begins, as after bare rejections. A probe that hangs counts as rejected when it is late, and so does
// a request at the learned rate. Requests that hang do not count as in flight. If one of them is
// accepted after all, before another one has failed, the server was only slow: the stop and the rate
// end, and for the time noEstimate no other begins.
type hangState uint8

const (
	notHanging       hangState = iota // requests that hang are not suspected to be rejected
	suspectedHanging                  // they are
	confirmedHanging                  // one of them was rejected, or failed as rejected requests do
)

const (
	minBefore   = 20 // requests accepted before, without a failure among the latest 8
	minHanging  = 4 // requests that hang are evidence, if they are three quarters of those sent since the first of them
	maxUnproven = 1 // requests in flight at a learned rate, in addition to those that the time of a late response explains
)

// lateIn returns the time until the requests in flight hang if no response arrives.
func (q *quota) lateIn(now time.Time) time.Duration {
	s := &q.slow
	return max(later(s.sent, q.lastResponse).Add(lateAfter*s.typical+lateMargin+1).Sub(now), 1)
}

// hang applies that requests in flight hang as of now.
func (q *quota) hang(now time.Time) {
	if l := q.endpoint.tracker.listeners.Load(); l != nil {
		defer l.watch(q, now)()
	}
	inf, n := q.inference, max(q.sentBefore, q.slow.watched) // the latest claim that hangs
	if inf == nil || inf.hanging == notHanging {
		if !q.hangImpliesLimit(n, now) {
			return
		}
		if inf = q.infer(acceptedSpan{}, now); inf == nil {
			return
		}
		inf.hanging = suspectedHanging
	}
	inf.lastHanging, q.slow.watched = n, 0
	q.inFlight.giveUp()
	if inf.loop.on() && !q.hold.active {
		q.updateLoop(q.inFlight.sent, true, now)
		return
	}
	q.stop(q.inFlight.sent, now)
}

// hangImpliesLimit reports whether the claims up to n, which hang, are evidence of a limit.
func (q *quota) hangImpliesLimit(n uint64, now time.Time) bool {
	inf, hanging, bound := q.inference, q.inFlight.open-q.inFlight.after(n), q.maxInFlight()
	switch {
	case q.endpoint.tracker.initialConcurrency <= 0, len(q.estimates) > 0, q.hold.active, q.slow.recent != 0, q.slow.maxInFlight > 0:
		return false
	case inf != nil && (inf.limits() || inf.loopPending || now.Before(inf.nextEstimate[causeClass(throttle.CauseTimeout)])):
		return false
	}
	recent := now.Sub(later(q.slow.sent, q.lastResponse)) <= idleAfter+lateAfter*q.slow.typical
	return recent && q.span.n >= minBefore && bound > 0 && q.inFlight.open >= bound &&
		hanging >= minHanging && 4*hanging >= 3*(q.inFlight.span()-int64(q.inFlight.sent-n))
}

// respondedAfterHang applies f, the response to claim n, which did not count as in flight any more.
func (q *quota) respondedAfterHang(n uint64, f *throttle.Feedback, now time.Time) {
	inf := q.inference
	switch {
	case inf == nil || inf.hanging != suspectedHanging:
	case f.Outcome == throttle.Throttled || isEstimated(f.Cause):
		inf.hanging = confirmedHanging
	case f.Outcome == throttle.Accepted && n <= inf.lastHanging:
		if q.hold.active && q.hold.estimated {
			q.hold.end()
			q.hold.until = now
		}
		q.dropLoop(true, now)
	}
}
