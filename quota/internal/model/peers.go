package model

import (
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// The methods of this file apply what other processes report of a quota that they share.

// probeTime is the minimum wait for the result of another process's test, and the maximum random addition to it.
const probeTime = time.Second

// ApplyLimits applies limits that another process knows. In a window that is known, the reset stays as it
// is: it would move by the transmission time with each update.
func (q *Quota) ApplyLimits(limits []throttle.RemoteLimit, now time.Time) {
	for _, l := range limits {
		i := q.find(l, now)
		if i < 0 {
			continue
		}
		e := &q.Estimates[i]
		if now.Before(e.Reset) && statedlimit.ResetOf(l, now).Sub(e.Reset).Abs() < statedlimit.Tolerance {
			l.ResetAfter = e.Reset.Sub(now)
		}
		e.Update(l, 0, now, &q.InFlight)
	}
}

// leaveToPeers reports whether a claim may be granted as of now, as far as peers are concerned.
// If not, wait is the time until that may change; 0: when a response arrives.
func (q *Quota) leaveToPeers(now time.Time) (wait time.Duration, ok bool) {
	if q.Peers.Drop(now) == 0 {
		return 0, true
	}
	if _, waits := q.Hold.Waits(now); waits {
		return 0, true // the hold is the reason to wait
	}
	left := int64(math.MaxInt64) // of the estimate with the fewest units
	for i := range q.Estimates {
		switch e := &q.Estimates[i]; {
		case e.CountsInFlight():
		case e.Probe, !now.Before(e.Reset): // all processes begin the next window
			left = min(left, e.Limit)
		default:
			left = min(left, e.Left(now))
		}
	}
	if left <= 0 || left == math.MaxInt64 {
		return 0, true // there is nothing to divide
	}
	part, next := q.Peers.Part(left, q.Account.Random, now)
	switch {
	case q.InFlight.Open < part:
		return 0, true
	case q.InFlight.Open > 0:
		return 0, false
	}
	return next, false
}

// HeldElsewhere holds requests, because another process found that others than the rejected request would be rejected,
// too: until end, if the server stated it, and otherwise until a test is accepted. That process sends the tests. Of two
// processes that were rejected at the same time, the one with the smaller identifier does; smaller reports whether that
// is the other one. HeldElsewhere returns false if the hold is known.
func (q *Quota) HeldElsewhere(end time.Time, stated, smaller bool, now time.Time) bool {
	h := &q.Hold
	known := h.Held && !h.Ending
	if known && (!stated || end.Sub(h.Until) <= statedlimit.Tolerance) && (!smaller || q.follows) {
		return false
	}
	if !stated {
		end = time.Time{}
	}
	h.Begin(q.InFlight.Sent, end, now)
	if !known || smaller {
		q.follows = true
		q.tests.on = false
		q.tests.begin(stated, 0, now)
		q.tests.next = now.Add(firstPause + q.followDelay())
	}
	return true
}

// followDelay returns a random delay after which this process tests, if another one that should have does not.
func (q *Quota) followDelay() time.Duration {
	return probeTime + time.Duration(q.Account.Random()*float64(probeTime))
}

// ProbedElsewhere delays the next test until the result of that of another process is known. It returns
// false, and changes nothing, if there is no hold or if a test of this process is in flight.
func (q *Quota) ProbedElsewhere(now time.Time) bool {
	if !q.Hold.Held || q.tests.claim != 0 && q.InFlight.Contains(q.tests.claim) {
		return false
	}
	q.tests.next = ticks.Later(q.tests.next, now.Add(q.followDelay()))
	return true
}

// TestRejectedElsewhere applies that a test of another process was rejected, which sends the next one after pause and a
// random part of it. This process sends one if that one does not.
func (q *Quota) TestRejectedElsewhere(pause time.Duration, now time.Time) {
	if !q.Hold.Held {
		return
	}
	q.Hold.Rejected++
	*q.tests.pause() = max(*q.tests.pause(), pause)
	q.tests.next = ticks.Later(q.tests.next, now.Add(pause+time.Duration(testJitter*float64(pause))+q.followDelay()))
}

// ReleasedElsewhere ends the hold, because a test that another process sent at probed was accepted. It does
// not end a hold that began later.
func (q *Quota) ReleasedElsewhere(probed, now time.Time) (released bool) {
	h := &q.Hold
	if !h.Held || h.Latest.After(probed) {
		return false
	}
	if !h.Ending { // what has waited is being sent already
		q.release(h.Since, releaseTrips, now)
	}
	estimated := h.Estimated()
	right := h.End(now)
	h.Ending, q.follows = false, false
	q.tests.accepted()
	q.learn(right && estimated, now)
	if q.Learned != nil && q.Learned.Loop.On() {
		// All processes receive the update at the same time, and must not send at the same time.
		q.Learned.Loop.DelayFirst(q.Account.Random(), now)
	}
	return true
}
