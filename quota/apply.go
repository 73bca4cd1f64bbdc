package quota

import (
	"time"

	"github.com/heed-go/heed/throttle"
)

// apply applies an update of another process, as of now. It reports whether requests may be sent
// earlier than before.
func (ep *endpoint) apply(u Update, now time.Time) (sooner bool) {
	switch u.Kind {
	case UpdateFetched:
		return ep.endFetch()
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
	q.change(now, func(now time.Time) {
		q.shared.addPeer(&u, now)
		q.ApplyLimits(u.Limits, now)
		q.setLimits(now)
		sooner = len(u.Limits) > 0 // a window may have begun
		known := false             // other processes know the hold
		switch u.Kind {
		case UpdateHold:
			known = u.Wait > 0 && q.HeldElsewhere(now.Add(u.Wait), u.Stated, u.Sender < ep.tracker.sharing.self, now)
			if u.Pause > 0 {
				q.TestRejectedElsewhere(u.Pause, now)
			}
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
		sooner = sooner || !q.FetchUntil.IsZero()
		q.FetchUntil = time.Time{}
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
