package model

import (
	"slices"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// Learned is what is estimated of a quota whose server rejects requests without stating its limits. A quota has none
// until the first rejection, and drops it after forgetAfter successes in a row in which nothing was estimated.
//
// An estimate begins in two ways. After a hold without a stated end that was right, it is a window or, if the times fit
// none, a rate. And if many requests are rejected, it is the rate of those that are accepted, if rejections become rarer
// at it, see learnedlimit.RateTest. It is dropped as soon as they do not. A trial decides whether an estimate is too low, see trial.
type Learned struct {
	Loop   learnedlimit.RateLoop
	Window learnedlimit.Window

	accepted       learnedlimit.AcceptedRate
	test           learnedlimit.RateTest     // whether rejections depend on the rate
	before         learnedlimit.AcceptedSpan // requests accepted before the present hold; zero until: there is none
	beforeSent     uint64                    // latest claim that was sent then
	next           time.Time                 // no rate is begun before: one has failed
	failedTests    uint8                     // in a row
	successesInRow int                       // since the latest rejection or failure
	trial          trial
}

const (
	forgetAfter = 50 // successes in a row, after which nothing learned is kept
	maxDoubled  = 6  // doublings of the time without an estimate
)

// Limits reports whether a rate or a window is estimated, or a window is declared.
func (l *Learned) Limits() bool { return l.Loop.On() || l.Window.On() }

// remember returns what q has learned, which is new if there is nothing; nil if there is no memory for it.
func (q *Quota) remember(now time.Time) *Learned {
	if q.Learned != nil || q.Dropped || !q.Account.Memory.Reserve(LearnedBytes) {
		return q.Learned
	}
	q.Learned = new(Learned)
	if q.Span.N > 0 {
		q.Learned.accepted.AddEvenly(q.Span.N, max(now.Sub(q.Span.Since), 0), now)
	}
	return q.Learned
}

// rememberSpan records what was accepted before the first rejection, which arrived now.
func (q *Quota) rememberSpan(now time.Time) {
	l := q.remember(now)
	if l == nil || l.Limits() {
		return
	}
	l.before, l.beforeSent = q.Span, q.InFlight.Sent
	l.before.Until = now
}

// learn applies that a hold has ended with the acceptance of the latest claims. right reports whether it shows a
// limit. Then a window or a rate is estimated, unless one is already.
func (q *Quota) learn(right bool, now time.Time) {
	l, h := q.Learned, &q.Hold
	if l == nil {
		return
	}
	before := l.before
	l.before = learnedlimit.AcceptedSpan{}
	switch {
	case l.Loop.On():
	case l.Window.On():
		l.Window.Released(q.InFlight.Sent, q.LastGranted)
	case right && before.N > 0 && q.Account.Full && !q.states():
		rejected := time.Time{} // when the latest rejected test was; zero: there was none
		if h.Rejected > 0 {
			rejected = h.Latest
		}
		l.Window = learnedlimit.NewWindow(before, rejected, q.LastGranted, q.InFlight.Sent)
		if !l.Window.On() {
			l.Loop.BeginAfterStop(before, h.Latest, q.LastGranted, now, l.accepted.Highest(now)/2, q.InFlight.Sent)
			l.test.BeginConfirmed(q.Overload.Share())
			break
		}
		stated := time.Duration(0)
		if !h.Estimated() {
			stated = h.Until.Sub(before.Until)
		}
		l.Window.DescribeStop(stated, rejected.IsZero())
	}
	q.Span = learnedlimit.AcceptedSpan{Since: q.LastGranted} // a window of the server may have begun with the test
}

// states reports whether the server states a limit that is obeyed.
func (q *Quota) states() bool {
	return slices.ContainsFunc(q.Estimates, func(e statedlimit.Estimate) bool { return e.Proven() })
}

// testRate puts a rate on test if many requests are rejected or fail although their number in flight is not limited. f
// is the response to claim n.
func (q *Quota) testRate(n uint64, f *throttle.Feedback, now time.Time) {
	rejected := f.Outcome != throttle.Accepted
	if !rejected && q.Learned == nil || !q.Account.Full || q.states() {
		return
	}
	l := q.remember(now)
	if l == nil || l.Limits() || now.Before(l.next) {
		return
	}
	if q.Overload.Limit() > 0 { // the rate would be that of the few in flight
		l.test = learnedlimit.RateTest{}
		return
	}
	if rate := l.test.Measure(n, q.InFlight.Sent, rejected, q.trip.Typical(), now); rate > 0 {
		cause := f.Cause
		if f.Outcome == throttle.Throttled {
			cause = throttle.CauseUnstated
		}
		l.test.Begin()
		l.Loop.BeginAt(cause, rate, q.InFlight.Sent, now)
		if q.Hold.Suspected {
			l.Loop.CountFrom(q.Hold.Until, now)
		}
	}
}

// Declare gives q, which is new, the limit l that is declared for its host, as a learned window. If
// there is no memory for it, q has no declared limit.
func (q *Quota) Declare(l throttle.Limit) {
	if !q.Account.Memory.Reserve(LearnedBytes) {
		return
	}
	limit, length := l.Count, l.Per
	if l.Burst > 0 && l.Burst < l.Count {
		limit, length = l.Burst, time.Duration(ticks.MulDivUp(int64(l.Per), l.Burst, l.Count))
	}
	q.Learned = &Learned{Window: learnedlimit.NewDeclaredWindow(limit, length)}
}

// rejectedByLearned applies the rejection of claim n to the window or rate that is estimated.
func (q *Quota) rejectedByLearned(n uint64, retryAfter time.Duration, now time.Time) {
	l := q.Learned
	switch {
	case q.answered(n, true, now):
	case l.Window.On():
		q.updateWindow(l.Window.Rejected(n, now), now)
	case retryAfter <= 0:
		q.updateLoop(n, true, now)
	case l.Loop.Counts(n, now) && q.judge(true, now):
		q.apply(l.Loop.AddStatedWait(retryAfter, &l.accepted, q.trip.bounded(), q.InFlight.Sent, now), now)
	}
}

// succeeded applies the successful response to claim n.
func (q *Quota) succeeded(n uint64, now time.Time) {
	l := q.Learned
	l.accepted.Add(1, now)
	q.answered(n, false, now)
	if q.Hold.Suspected && n <= l.beforeSent && !l.before.Until.IsZero() {
		l.before.N++ // it was in flight when the hold began
	}
	switch {
	case !l.Limits():
	case l.Window.On():
		q.updateWindow(l.Window.Succeeded(n, q.LastGranted), now)
	default:
		l.Loop.Span.N++
		q.updateLoop(n, false, now)
	}
	l.successesInRow++
	if l.successesInRow >= forgetAfter && !l.Limits() && !q.Hold.Suspected && !now.Before(l.next) {
		q.Learned = nil
		q.Account.Memory.Release(LearnedBytes)
	}
}

// updateLoop applies the response to claim n to the loop, if it shows the effect of the present
// rate. rejected is set if it is a rejection, or a failure of the cause of the loop.
func (q *Quota) updateLoop(n uint64, rejected bool, now time.Time) {
	l := q.Learned
	if l.Loop.Counts(n, now) && q.judge(rejected, now) {
		q.apply(l.Loop.AddResponse(rejected, &l.accepted, q.trip.bounded(), q.InFlight.Sent, now), now)
	}
}

// judge adds a response to the test of the loop, and drops the loop if rejections do not depend on its rate. It reports
// whether the response may change the rate.
func (q *Quota) judge(rejected bool, now time.Time) bool {
	l := q.Learned
	testing := l.test.Testing()
	if q.Hold.Held { // a test of the hold was not sent at the rate
		return !testing
	}
	depends, independent := l.test.Judge(rejected)
	switch {
	case depends:
		q.Overload.Explained()
	case independent:
		q.dropLoop(true, now)
	}
	return !testing && !independent
}

// apply applies what the loop demands.
func (q *Quota) apply(a learnedlimit.LoopAction, now time.Time) {
	switch a {
	case learnedlimit.StopSending:
		q.stop(now)
	case learnedlimit.AbandonLoop, learnedlimit.EndLoop:
		q.dropLoop(a == learnedlimit.AbandonLoop, now)
	}
}

// stop holds requests until a test is accepted, because a learned limit was exceeded.
func (q *Quota) stop(now time.Time) {
	q.Hold.Begin(q.InFlight.Sent, time.Time{}, now)
	q.tests.on = false
	q.tests.begin(false, firstPause, now)
}

// dropLoop ends the loop. If it has failed, because lower rates do not make rejections rarer, no rate is tested for
// a while.
func (q *Quota) dropLoop(failed bool, now time.Time) {
	l := q.Learned
	if failed {
		l.next = now.Add(learnedlimit.NoEstimate << min(l.failedTests, maxDoubled))
		l.failedTests++
	}
	l.Loop, l.test = learnedlimit.RateLoop{}, learnedlimit.RateTest{}
	l.trial = trial{pause: l.trial.pause, next: now.Add(max(l.trial.pause, firstTrial))}
	q.openUp(now)
}

// updateWindow applies v, what a response shows about the learned window. If there is
// no window, the loop begins with the rate that the responses have shown.
func (q *Quota) updateWindow(v learnedlimit.Verdict, now time.Time) {
	if v == learnedlimit.FitsWindow {
		return
	}
	l := q.Learned
	w := l.Window
	l.Window = learnedlimit.Window{}
	switch v {
	case learnedlimit.FitsBucket, learnedlimit.BeyondWindow:
		l.Loop = w.RateLoop(v, q.InFlight.Sent, now)
		l.test.BeginConfirmed(q.Overload.Share())
	case learnedlimit.FitsNothing: // the next window or loop begins with what this one has shown
		q.Span = learnedlimit.AcceptedSpan{Since: w.Start, N: w.Accepted}
		q.rememberSpan(now)
		q.stop(now)
	}
}
