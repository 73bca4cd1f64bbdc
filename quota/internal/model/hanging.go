package model

import (
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/concurrency"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/throttle"
)

// Some servers reject requests late or never: HAProxy with tarpit and silent-drop does, and so do
// firewalls that drop packets. A request hangs if its response is late, see concurrency.SlowResponses,
// and no other response has arrived for as long:
//
//	accepted  ||||||||                            |      |   |   |   |
//	hang              ||||                ┊
//	                  ├ late ┤ stop     probe   probe, learned rate
//
// Requests that hang are evidence of a limit if slow start admits no more of them, after minBefore that
// were accepted. Then a stop begins, as after bare rejections. It ends with a probe that is accepted, and
// a learned rate follows. A probe that hangs counts as rejected as soon as it is late, and so does a
// request at that rate, so few are in flight. Claims that hang do not count as in flight any more.
//
// A healthy server that pauses, or works slowly, looks the same until it responds. If a request that hung
// is accepted after all, requests that hang are no rejections: the stop and the rate end, and none begins
// for the time learnedlimit.NoEstimate. If its caller gives up, nothing will show that, so they end, too.
// Where requests are sent to slow routes and to fast ones, not all of them hang.

const (
	minBefore   = 20 // requests that were accepted before, without a failure among the latest 8 responses
	minHanging  = 4  // requests that hang, at least three quarters of those that were sent since the first of them
	maxUnproven = 1  // requests in flight at a learned rate, in addition to those of the time after which a response is late
)

// lateIn returns the time until the requests in flight hang if no response arrives.
func (q *Quota) lateIn(now time.Time) time.Duration {
	s := &q.Slow
	return max(s.LateAt(ticks.Later(s.Sent, q.LastResponse)).Sub(now), 1)
}

// hang applies that requests in flight hang as of now.
func (q *Quota) hang(now time.Time) {
	inf, n := q.Inference, max(q.sentBefore, q.Slow.Watched) // n is the latest claim that is late
	if inf == nil || !inf.hanging {
		if !q.hangImpliesLimit(n, now) {
			return
		}
		if inf = q.infer(learnedlimit.AcceptedSpan{}, now); inf == nil {
			return
		}
		inf.hanging, inf.Forbidden = true, false
	}
	inf.lastHanging, q.Slow.Watched = n, 0
	q.InFlight.GiveUp()
	if inf.Loop.On() && !q.Hold.Active {
		q.updateLoop(q.InFlight.Sent, true, now)
		return
	}
	q.stop(q.InFlight.Sent, now)
}

// hangImpliesLimit reports whether the claims up to n, which are late, are evidence of a limit that the
// server does not state.
func (q *Quota) hangImpliesLimit(n uint64, now time.Time) bool {
	inf, hanging, bound := q.Inference, q.InFlight.Open-q.InFlight.After(n), q.MaxInFlight()
	switch {
	case q.Account.InitialConcurrency <= 0, len(q.Estimates) > 0, q.Hold.Active, q.Slow.Recent != 0, q.Slow.MaxInFlight > 0:
		return false
	case inf != nil && (inf.Limits() || now.Before(inf.nextEstimate[causeClass(throttle.CauseTimeout)])):
		return false
	}
	recent := now.Sub(ticks.Later(q.Slow.Sent, q.LastResponse)) <= learnedlimit.IdleAfter+concurrency.LateAfter*q.Slow.Typical
	return recent && q.Span.N >= minBefore && bound > 0 && q.InFlight.Open >= bound &&
		hanging >= minHanging && 4*hanging >= 3*(q.InFlight.Span()-int64(q.InFlight.Sent-n))
}

// respondedAfterHang applies that claim n, which did not count as in flight any more, was accepted, or
// that its caller gave up.
func (q *Quota) respondedAfterHang(n uint64, now time.Time) {
	inf := q.Inference
	if inf == nil || !inf.hanging || n > inf.lastHanging {
		return
	}
	if q.Hold.Active && q.Hold.Estimated {
		q.Hold.End()
		q.Hold.Until = now
	}
	q.dropLoop(false, now)
	inf.nextEstimate[causeClass(throttle.CauseTimeout)] = now.Add(learnedlimit.NoEstimate)
	q.LastResponse, q.sentBefore = now, q.InFlight.Sent // the server responds, so slow start admits no more than its bound
}
