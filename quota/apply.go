package quota

import (
	"time"

	"github.com/heed-go/heed/quota/internal/learnedlimit"
	"github.com/heed-go/heed/throttle"
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
		known := false             // other processes know the hold
		switch u.Kind {
		case UpdateHold:
			known = u.Wait > 0 && q.HeldElsewhere(now.Add(u.Wait), u.Stated, u.Sender < ep.tracker.sharing.self, now)
		case UpdateProbe:
			known = q.ProbedElsewhere(now)
		case UpdateRelease:
			known = q.ReleasedElsewhere(now.Add(-u.Wait), now)
			sooner = known
		}
		if known {
			q.shared.setHold(&q.Hold)
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
