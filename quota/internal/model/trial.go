package model

import (
	"time"

	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/throttle"
)

// A trial decides whether a learned limit is too low. It begins when a call gives up because it waited for the
// limit, at most once in a pause that grows from 1 to 640 s:
//
//	          extra requests                  extra requests
//	limit ────────┬── accepted ── doubled ────────┬── accepted ──── dropped
//	              └── rejected ── as before       └── rejected ──── as before
//
// The extra requests do not count for the limit, and those that are rejected are repaid. While the limit is doubled,
// rejections restore it.
type trial struct {
	claims [maxExtra]uint64 // in flight; 0: none
	extra  int              // claims that may still be granted
	n, bad int              // responses, and rejections of these
	on     bool             // responses are awaited
	began  time.Time
	next   time.Time     // no trial begins before
	pause  time.Duration // after the latest trial
	gaveUp int           // calls that gave up since the latest trial

	raised bool                  // the limit is doubled
	sentBy uint64                // latest claim when it was
	score  int                   // of responses since: 5 for each rejection, -1 for each success
	loop   learnedlimit.RateLoop // the limit before it was doubled
	window learnedlimit.Window
}

const (
	maxExtra   = 8 // requests of a trial
	minExtra   = 4
	firstTrial = time.Second
	lastTrial  = 640 * time.Second
	takenIn    = time.Second      // time for which extra requests may be granted
	answeredIn = 30 * time.Second // time after which missing responses are not awaited
	badScore   = 10
)

// canceled applies that the caller of claim n has given up: it shows nothing. It reports whether n was an extra claim.
func (t *trial) canceled(n uint64) bool {
	for i, c := range t.claims {
		if c == n && n != 0 {
			t.claims[i] = 0
			return true
		}
	}
	return false
}

// answered reports whether claim n was an extra one, and counts its response.
func (t *trial) answered(n uint64, bad bool) bool {
	for i, c := range t.claims {
		if c != n || n == 0 {
			continue
		}
		t.claims[i] = 0
		t.n++
		if bad {
			t.bad++
		}
		return true
	}
	return false
}

// rejectedWhileRaised reports whether claim n, which was rejected, was sent while the limit was doubled.
func (t *trial) rejectedWhileRaised(n uint64) bool {
	if !t.raised || n <= t.sentBy {
		return false
	}
	t.score += 5
	return true
}

func (t *trial) tooMany() bool { return t.score >= badScore }

// succeeded applies that claim n was accepted.
func (t *trial) succeeded(n uint64) {
	if t.raised && n > t.sentBy {
		t.score = max(t.score-1, 0)
	}
}

// tryLearned applies that a call has given up. It reports whether extra claims may be granted now.
func (q *Quota) tryLearned(now time.Time) bool {
	l := q.Learned
	t := &l.trial
	estimated := l.Limits() && !l.Window.Declared
	if !estimated {
		return false
	}
	t.gaveUp++
	if t.on {
		q.judgeTrial(now)
	}
	if t.on {
		return t.extra > 0
	}
	if now.Sub(t.began) > 2*lastTrial {
		t.began, t.pause, t.next, t.raised = now, 0, now.Add(firstTrial), false
	}
	if now.Before(t.next) {
		return false
	}
	t.on, t.began, t.n, t.bad, t.claims = true, now, 0, 0, [maxExtra]uint64{}
	t.extra = min(maxExtra, max(minExtra, t.gaveUp/10))
	t.gaveUp = 0
	return true
}

// grantExtra grants a claim that the learned limit does not count, and returns its Decision.Grant.
func (q *Quota) grantExtra(now time.Time) uint64 {
	l := q.Learned
	q.Learned = nil
	grant := q.grant(1, now)
	q.Learned = l
	t := &l.trial
	for i, c := range t.claims {
		if c == 0 {
			t.claims[i] = number(grant)
			break
		}
	}
	t.extra--
	return grant
}

// applyTrial applies f, the response to an extra claim.
func (q *Quota) applyTrial(n uint64, f *throttle.Feedback, now time.Time) (counted bool) {
	if f.Outcome == throttle.Accepted {
		q.Learned.accepted.Add(1, now)
		q.Span.N++
	}
	if q.Learned.trial.on {
		q.judgeTrial(now)
	}
	return f.Outcome != throttle.Failed
}

// judgeTrial ends the trial when its responses have arrived.
func (q *Quota) judgeTrial(now time.Time) {
	l := q.Learned
	t := &l.trial
	if t.claims != [maxExtra]uint64{} && now.Sub(t.began) < answeredIn || t.extra > 0 && now.Sub(t.began) < takenIn {
		return
	}
	t.on, t.extra, t.claims = false, 0, [maxExtra]uint64{}
	if t.n == 0 && !t.raised { // its calls gave up
		t.next = now.Add(firstTrial)
		return
	}
	accepted := t.n > 0 && 4*t.bad <= t.n
	switch {
	case !accepted && t.raised:
		q.lowerAgain(now)
	case !accepted:
		t.wait(now)
		if l.Loop.On() {
			l.Loop.Spend(int64(t.n), now)
		}
	case !t.raised:
		t.raised, t.sentBy, t.score = true, q.InFlight.Sent, 0
		t.next = now.Add(max(firstTrial, t.pause))
		t.loop, t.window = l.Loop, l.Window
		if l.Loop.On() {
			l.Loop.Double()
		} else {
			l.Window.Limit, l.Window.ConfirmedLimit = 2*l.Window.Limit, 2*l.Window.ConfirmedLimit
		}
	default:
		t.raised = false
		t.wait(now)
		l.Window = learnedlimit.Window{}
		q.dropLoop(false, now)
		if h := &q.Hold; h.Held && h.Estimated() {
			h.Release()
		}
	}
}

// wait begins the pause before the next trial.
func (t *trial) wait(now time.Time) {
	t.pause = min(max(2*t.pause, firstTrial), lastTrial)
	t.next = now.Add(t.pause)
}

// lowerAgain restores the limit as it was before it was doubled.
func (q *Quota) lowerAgain(now time.Time) {
	l := q.Learned
	t := &l.trial
	t.on, t.extra, t.raised = false, 0, false
	t.wait(now)
	if l.Limits() && (t.loop.On() || t.window.On()) {
		l.Loop, l.Window = t.loop, t.window
		l.Loop.Restored(maxExtra, q.trip.bounded(), q.InFlight.Sent, now)
	}
}
