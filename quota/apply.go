package quota

import (
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
		q.ApplyLimits(u.Limits, now)
		q.setLimits(now)
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
		if until := q.shared.fetchUntil; !until.IsZero() && q.Hold.Until.Equal(until) { // it is not held since
			q.Hold.Until, sooner = time.Time{}, true
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

// applyHold holds requests until the end of the hold, and a random delay in which the process that
// was rejected sends the probe. Of two processes that were rejected at the same time, the one with
// the smaller identifier sends it.
func (q *quota) applyHold(u *Update, now time.Time) {
	if u.Wait == 0 || !u.Stated && !q.Account.Full {
		return // it is over, or an estimate of another process
	}
	h, s, end := &q.Hold, q.shared, now.Add(u.Wait)
	delay := minFollow + time.Duration(q.Account.Random()*float64(followRange))
	h.Estimated = !u.Stated
	leaves := u.Sender < q.endpoint.tracker.sharing.self && !s.follows // the probe to the sender
	if isNew := !h.Active || !now.Before(h.Until); isNew || leaves || end.Sub(h.Until) > statedlimit.Tolerance {
		if !isNew {
			end = ticks.Later(h.Until, end)
		} else {
			h.Active, h.Abandoned, h.RejectedAt, h.LastSent, h.Rejections = true, false, now, q.InFlight.Sent, h.Rejections+1
		}
		h.Until, s.follows = end.Add(delay), true
	}
	s.setHold(h)
}

// applyProbe holds requests until the result of the probe of another process is known, unless a
// probe of this process is in flight.
func (q *quota) applyProbe(now time.Time) {
	h := &q.Hold
	if !h.Active || q.InFlight.After(h.LastSent) > 0 {
		return
	}
	h.Until = ticks.Later(h.Until, now.Add(probeTime+time.Duration(q.Account.Random()*float64(probeTime))))
	q.shared.setHold(h)
}

// applyRelease ends the hold, because a probe that was sent at probed was accepted. It does not
// end a hold that began later, or whose end is much later.
func (q *quota) applyRelease(probed, now time.Time) (released bool) {
	h := &q.Hold
	if !h.Active || h.RejectedAt.After(probed) || h.Until.Sub(now) > 2*probeTime+statedlimit.Tolerance {
		return false
	}
	h.End()
	q.shared.follows = false
	if h.Until.After(now) {
		h.Until = now
	}
	if q.Released(now); q.Inference != nil && q.Inference.Loop.On() {
		// All processes receive the update at the same time, and must not send at the same time.
		q.Inference.Loop.DelayFirst(q.Account.Random(), now)
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
	q.change(now, func(now time.Time) {
		q.shared.addPeer(u, now)
		stop = q.AddEvidence(u.Rejections, before, now)
	})
	if !stop {
		return
	}
	f := throttle.Feedback{Now: now, Outcome: throttle.Throttled, Cause: throttle.CauseUnstated}
	if q = ep.quotaOfUpdate(u.Route, &f); q != nil {
		q.rejectedExternally(&f, learnedlimit.AcceptedSpan{})
	}
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
