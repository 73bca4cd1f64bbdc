package model

import (
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
)

// A trial decides whether a learned limit is too low. While claims wait for the limit it is doubled now and then, and
// what the server accepts decides. If the limit is right, half of the requests are rejected:
//
//	           most accepted                      half rejected
//	limit ───┬──────────────▶ stays doubled ───┬─────────────────▶ as before, next trial after four times the pause
//
// The pause grows from 10 s, or from 1 s if a call gives up because it waited, to 640 s. The trial of a window begins
// only then, when the window is used up.
type trial struct {
	on     bool      // the limit is doubled
	sentBy uint64    // latest claim when that was
	score  int       // of the responses to later claims, see acceptedScore
	until  time.Time // when the trial ends
	next   time.Time // no trial begins before; zero: no claim has waited
	pause  time.Duration

	loop   learnedlimit.RateLoop // the limit before it was doubled
	window learnedlimit.Window
}

const (
	earlyTrial = time.Second
	firstTrial = 10 * time.Second
	lastTrial  = 640 * time.Second

	// The score is a random walk: it falls if less than two of five requests are rejected. It does not fall further
	// than tooLow, because a server may accept a burst before it rejects.
	acceptedScore = -2
	rejectedScore = 3
	tooLow        = -6
	rightLimit    = 8
	trialTime     = 10 * time.Second // least time that a trial takes, or
	trialRequests = 20               // the time of so many requests
)

// tryLearned applies that a claim waits for the learned limit, or that its caller gave up. It reports whether a trial
// begins.
func (q *Quota) tryLearned(gaveUp bool, now time.Time) bool {
	l := q.Learned
	t := &l.trial
	if !l.Limits() || l.Window.Declared || l.test.Testing() || l.Window.On() && !gaveUp && !t.on { // a window has tests of its own
		return false
	}
	if t.on {
		if now.After(t.until) {
			q.endTrial(now)
		}
		return false
	}
	if t.next.IsZero() {
		t.next = now.Add(firstTrial)
	}
	if gaveUp && t.pause == 0 && t.next.Sub(now) > earlyTrial {
		t.next = now.Add(earlyTrial)
	}
	if now.Before(t.next) || l.Window.On() && (l.Window.Used < l.Window.Limit || l.Window.Probing()) {
		return false
	}
	t.on, t.sentBy, t.score, t.loop, t.window = true, q.InFlight.Sent, 0, l.Loop, l.Window
	if l.Loop.On() {
		l.Loop.Double()
		t.until = now.Add(max(l.Loop.TimeOf(trialRequests), trialTime) + 2*q.trip.Typical())
	} else {
		l.Window.Limit, l.Window.ConfirmedLimit = 2*l.Window.Limit, 2*l.Window.ConfirmedLimit
		t.until = ticks.Later(l.Window.Reset, now.Add(2*q.trip.Typical()))
	}
	return true
}

// answered adds the response to claim n to the trial. It reports whether it belongs to it.
func (q *Quota) answered(n uint64, rejected bool, now time.Time) bool {
	t := &q.Learned.trial
	if !t.on || n <= t.sentBy {
		return false
	}
	if rejected {
		t.score += rejectedScore
	} else {
		t.score = max(t.score+acceptedScore, tooLow)
	}
	if t.score >= rightLimit || now.After(t.until) {
		q.endTrial(now)
	}
	return true
}

// endTrial ends the trial. The limit is restored unless it is too low: then it stays doubled, and may be doubled again
// immediately.
func (q *Quota) endTrial(now time.Time) {
	l := q.Learned
	t := &l.trial
	t.on = false
	if t.score <= tooLow {
		t.pause, t.next = 0, now
		return
	}
	if t.score >= rightLimit {
		t.pause = min(max(4*t.pause, firstTrial), lastTrial)
	}
	t.next = now.Add(max(t.pause, firstTrial))
	if l.Loop.On() == t.loop.On() && l.Window.On() == t.window.On() {
		l.Loop, l.Window.Limit, l.Window.ConfirmedLimit = t.loop, t.window.Limit, t.window.ConfirmedLimit
		l.Loop.Restored(q.trip.bounded(), q.InFlight.Sent, now)
	}
}
