package quota

import (
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

const (
	minFollow   = 50 * time.Millisecond  // minimum delay of a probe after that of the process that was rejected
	followRange = 200 * time.Millisecond // maximum random addition to minFollow
	probeTime   = time.Second            // minimum wait for the result of another process's probe, and maximum random addition to it
)

// apply applies an update of another process, as of now. It reports whether requests may be sent
// earlier than before.
func (ep *endpoint) apply(u Update, now time.Time) (sooner bool) {
	switch u.Kind {
	case UpdateFetched:
		return ep.endFetch()
	case UpdateRejections:
		ep.applyRejections(&u, now)
		return false
	}
	f := throttle.Feedback{Now: now, RemoteLimits: u.Limits}
	if len(u.Limits) > 0 {
		ep.statesLimits.Store(true)
	}
	if u.Kind == UpdateHold && u.Wait > 0 {
		f.Outcome = throttle.Throttled
	}
	q := ep.quotaOfUpdate(u.Route, &f)
	if q == nil {
		return false
	}
	if u.Kind != UpdateJoin {
		ep.unlimited.Store(false)
	}
	q.change(now, func(now time.Time) {
		q.shared.addPeer(&u, now)
		q.applyLimits(u.Limits, now)
		sooner = len(u.Limits) > 0 // a window may have begun
		switch u.Kind {
		case UpdateHold:
			q.applyHold(&u, now)
		case UpdateProbe:
			q.applyProbe(now)
		case UpdateRelease:
			sooner = q.applyRelease(now.Add(-u.Wait), now)
		}
	})
	return sooner
}

// endFetch ends the wait for a fetch. It reports whether requests may have waited.
func (ep *endpoint) endFetch() (sooner bool) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for _, q := range ep.all() {
		q.mu.Lock()
		if until := q.shared.fetchUntil; !until.IsZero() && q.hold.Until.Equal(until) { // it is not held since
			q.hold.Until, sooner = time.Time{}, true
		}
		q.shared.fetchUntil = time.Time{}
		q.mu.Unlock()
	}
	return sooner
}

// quotaOfUpdate returns the quota that an update of route concerns; nil if that cannot be known.
// f is the response that the other process received.
func (ep *endpoint) quotaOfUpdate(route uint64, f *throttle.Feedback) *quota {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if route == 0 {
		return ep.unknown.Load()
	}
	q := ep.quotaOfResponse(route, nil, ep.unknown.Load(), f)
	if q != nil {
		ep.rememberRoute(route, q)
	}
	return q
}

// applyLimits updates the estimates with limits. In a window that is known, the reset stays as it
// is: it would move by the transmission time with each update.
func (q *quota) applyLimits(limits []throttle.RemoteLimit, now time.Time) {
	for _, l := range limits {
		i := q.find(l, now)
		if i < 0 {
			continue
		}
		e := &q.estimates[i]
		if now.Before(e.Reset) && statedlimit.ResetOf(l, now).Sub(e.Reset).Abs() < statedlimit.Tolerance {
			l.ResetAfter = e.Reset.Sub(now)
		}
		e.CarryJitter(now, q.inFlight.Open)
		q.updateEstimate(e, l, 0, now)
	}
	q.setLimits(now)
}

// applyHold holds requests until the end of the hold, and a random delay in which the process that
// was rejected sends the probe. Of two processes that were rejected at the same time, the one with
// the smaller identifier sends it.
func (q *quota) applyHold(u *Update, now time.Time) {
	if u.Wait == 0 || !u.Stated && q.endpoint.tracker.Mode != Full {
		return // it is over, or an estimate of another process
	}
	h, s, end := &q.hold, q.shared, now.Add(u.Wait)
	delay := minFollow + time.Duration(q.endpoint.tracker.random()*float64(followRange))
	h.Estimated = !u.Stated
	leaves := u.Sender < q.endpoint.tracker.sharing.self && !s.follows // the probe to the sender
	if isNew := !h.Active || !now.Before(h.Until); isNew || leaves || end.Sub(h.Until) > statedlimit.Tolerance {
		if !isNew {
			end = ticks.Later(h.Until, end)
		} else {
			h.Active, h.RejectedAt, h.LastSent, h.Rejections = true, now, q.inFlight.Sent, h.Rejections+1
		}
		h.Until, s.follows = end.Add(delay), true
	}
	s.setHold(h)
}

// applyProbe holds requests until the result of the probe of another process is known, unless a
// probe of this process is in flight.
func (q *quota) applyProbe(now time.Time) {
	h := &q.hold
	if !h.Active || q.inFlight.After(h.LastSent) > 0 {
		return
	}
	h.Until = ticks.Later(h.Until, now.Add(probeTime+time.Duration(q.endpoint.tracker.random()*float64(probeTime))))
	q.shared.setHold(h)
}

// applyRelease ends the hold, because a probe that was sent at probed was accepted. It does not
// end a hold that began later, or whose end is much later.
func (q *quota) applyRelease(probed, now time.Time) (released bool) {
	h := &q.hold
	if !h.Active || h.RejectedAt.After(probed) || h.Until.Sub(now) > 2*probeTime+statedlimit.Tolerance {
		return false
	}
	h.End()
	q.shared.follows = false
	if h.Until.After(now) {
		h.Until = now
	}
	if q.released(now); q.inference != nil && q.inference.loop.On() {
		// All processes receive the update at the same time, and must not send at the same time.
		q.inference.loop.DelayFirst(q.endpoint.tracker.random(), now)
	}
	q.shared.setHold(h)
	return true
}

// applyRejections adds rejections of another process to the evidence, and holds the quota if that
// suffices.
func (ep *endpoint) applyRejections(u *Update, now time.Time) {
	ep.mu.Lock()
	q, _ := ep.lookUp(u.Route, nil)
	ep.mu.Unlock()
	ep.unlimited.Store(false)
	before, stop := ep.accepted(now), false
	q.change(now, func(now time.Time) { stop = q.addEvidence(u, before, now) })
	if !stop {
		return
	}
	f := throttle.Feedback{Now: now, Outcome: throttle.Throttled, Cause: throttle.CauseUnstated}
	if q = ep.quotaOfUpdate(u.Route, &f); q != nil {
		q.rejectedExternally(&f, learnedlimit.AcceptedSpan{})
	}
}

// addEvidence adds the rejections of u to the evidence, and reports whether it suffices for a
// stop. before is what was accepted before, as far as q has not counted it. During a rate loop,
// all processes together have reached the limit, so the rate does not grow for a while.
func (q *quota) addEvidence(u *Update, before learnedlimit.AcceptedSpan, now time.Time) (stop bool) {
	q.shared.addPeer(u, now)
	if q.endpoint.tracker.Mode != Full {
		return false
	}
	if q.lastGranted.After(before.Since) { // q has counted what was accepted
		before = learnedlimit.AcceptedSpan{}
	}
	inf := q.infer(before, now)
	if inf == nil {
		return false
	}
	inf.successesInRow = 0
	if l := &inf.loop; l.On() || q.hold.Active {
		l.RejectedElsewhere()
		return false
	}
	for range min(u.Rejections, 8) {
		inf.evidence.Add(throttle.CauseUnstated, now)
	}
	if !inf.evidence.ImpliesLimit(false, q.roundTrip(), now) {
		q.cutConcurrency(now)
		return false
	}
	inf.evidence.Restart()
	return true
}

// addPeer records that the sender of u uses the quota. No updates of it are expected while it waits.
func (s *sharedState) addPeer(u *Update, now time.Time) {
	wait := time.Duration(0)
	if u.Kind == UpdateHold {
		wait = u.Wait
	}
	for _, l := range u.Limits {
		wait = max(wait, l.ResetAfter)
	}
	s.peers.Add(u.Sender, wait, now)
}

// leaveToPeers reports whether a claim may be granted as of now, as far as peers are concerned.
// If not, wait is the time until that may change; 0: when a response arrives.
func (q *quota) leaveToPeers(now time.Time) (wait time.Duration, ok bool) {
	if q.shared.peers.Drop(now) == 0 {
		return 0, true
	}
	if _, open := q.hold.Check(now, &q.inFlight); !open {
		return 0, true // the hold is the reason to wait
	}
	left := int64(math.MaxInt64) // of the estimate with the fewest units
	for i := range q.estimates {
		if e := &q.estimates[i]; !e.Probe && !e.CountsInFlight() && now.Before(e.Reset) {
			left = min(left, e.Left(now))
		}
	}
	if left <= 0 || left == math.MaxInt64 {
		return 0, true // there is nothing to divide
	}
	part, next := q.shared.peers.Part(left, q.endpoint.tracker.random, now)
	switch {
	case q.inFlight.Open < part:
		return 0, true
	case q.inFlight.Open > 0:
		return 0, false
	}
	return next, false
}
