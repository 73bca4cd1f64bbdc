package model

import (
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// The methods of this file apply what other processes report of a quota that they share.

const (
	minFollow   = 50 * time.Millisecond  // minimum delay of a probe after that of the process that was rejected
	followRange = 200 * time.Millisecond // maximum random addition to minFollow
	probeTime   = time.Second            // minimum wait for the result of another process's probe, and maximum random addition to it
)

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
		e.CarryJitter(now, q.InFlight.Open)
		q.updateEstimate(e, l, 0, now)
	}
}

// leaveToPeers reports whether a claim may be granted as of now, as far as peers are concerned.
// If not, wait is the time until that may change; 0: when a response arrives.
func (q *Quota) leaveToPeers(now time.Time) (wait time.Duration, ok bool) {
	if q.Peers.Drop(now) == 0 {
		return 0, true
	}
	if _, open := q.Hold.Check(now, &q.InFlight); !open {
		return 0, true // the hold is the reason to wait
	}
	left := int64(math.MaxInt64) // of the estimate with the fewest units
	for i := range q.Estimates {
		if e := &q.Estimates[i]; !e.Probe && !e.CountsInFlight() && now.Before(e.Reset) {
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

// HeldElsewhere holds requests until end, the end of a hold of another process, and a random delay in which
// that process sends the probe. Of two processes that were rejected at the same time, the one with the
// smaller identifier sends it. stated reports whether the server stated the hold, and smaller whether the
// identifier of the other process is smaller. HeldElsewhere returns false if the hold is ignored.
func (q *Quota) HeldElsewhere(end time.Time, stated, smaller bool, now time.Time) bool {
	if !stated && !q.Account.Full {
		return false // an estimate of another process
	}
	h := &q.Hold
	delay := minFollow + time.Duration(q.Account.Random()*float64(followRange))
	h.Estimated = !stated
	if isNew := !h.Active || !now.Before(h.Until); isNew || smaller && !q.follows || end.Sub(h.Until) > statedlimit.Tolerance {
		if !isNew {
			end = ticks.Later(h.Until, end)
		} else {
			h.Active, h.Abandoned, h.RejectedAt, h.LastSent, h.Rejections = true, false, now, q.InFlight.Sent, h.Rejections+1
		}
		h.Until, q.follows = end.Add(delay), true
	}
	return true
}

// ProbedElsewhere holds requests until the result of the probe of another process is known. It returns
// false, and changes nothing, if there is no hold or if a probe of this process is in flight.
func (q *Quota) ProbedElsewhere(now time.Time) bool {
	h := &q.Hold
	if !h.Active || q.InFlight.After(h.LastSent) > 0 {
		return false
	}
	h.Until = ticks.Later(h.Until, now.Add(probeTime+time.Duration(q.Account.Random()*float64(probeTime))))
	return true
}

// ReleasedElsewhere ends the hold, because a probe that another process sent at probed was accepted. It does
// not end a hold that began later, or whose end is much later.
func (q *Quota) ReleasedElsewhere(probed, now time.Time) (released bool) {
	h := &q.Hold
	if !h.Active || h.RejectedAt.After(probed) || h.Until.Sub(now) > 2*probeTime+statedlimit.Tolerance {
		return false
	}
	h.End()
	q.follows = false
	if h.Until.After(now) {
		h.Until = now
	}
	if q.released(now); q.Inference != nil && q.Inference.Loop.On() {
		// All processes receive the update at the same time, and must not send at the same time.
		q.Inference.Loop.DelayFirst(q.Account.Random(), now)
	}
	return true
}

// AddEvidence adds n bare rejections of requests of another process to the evidence, and reports whether it
// suffices for a stop. before is what was accepted before, as far as q has not counted it. During a rate
// loop, all processes together have reached the limit, so the rate does not grow for a while.
func (q *Quota) AddEvidence(n int, before learnedlimit.AcceptedSpan, now time.Time) (stop bool) {
	if !q.Account.Full {
		return false
	}
	if q.LastGranted.After(before.Since) { // q has counted what was accepted
		before = learnedlimit.AcceptedSpan{}
	}
	inf := q.infer(before, now)
	if inf == nil {
		return false
	}
	inf.successesInRow = 0
	if l := &inf.Loop; l.On() || q.Hold.Active {
		l.RejectedElsewhere()
		return false
	}
	for range min(n, 8) {
		inf.Evidence.Add(throttle.CauseUnstated, now)
	}
	if !inf.Evidence.ImpliesLimit(false, q.roundTrip(), now) {
		q.cutConcurrency(now)
		return false
	}
	inf.Evidence.Restart()
	return true
}
