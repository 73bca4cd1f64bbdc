package quota

import (
	"time"

	"github.com/heed-go/heed/throttle"
)

// Processes that share what servers state share evidence, too: a rejection without
// numbers counts in each of them, so that not each has to collect its own.

// rejects notes a rejection that states nothing, of a request of route, to be posted.
func (b *bucket) rejects(route uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.joint.rejected, b.joint.from = b.joint.rejected+1, route
}

// learnRejected takes in rejections that another process posted.
func (s *site) learnRejected(n *news, now time.Time) {
	b := s.homeKnown(n.Route)
	s.silent.Store(false)
	if !b.learnRejected(n, s.accepted(now), now) {
		return
	}
	f := throttle.Feedback{Now: now, Outcome: throttle.Throttled, Cause: throttle.CauseUnstated}
	if home := s.homeTold(n.Route, &f); home != nil {
		home.startle(&f, tally{})
	}
}

// homeKnown returns the quota of route, or the one of all routes of which nothing is
// known.
func (s *site) homeKnown(route uint64) *bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(route)
}

// learnRejected adds the rejections to the marks, and reports whether there is evidence to
// stop. While there is an estimate, it says that all processes together have reached the
// limit, so the rate does not grow for a while.
func (b *bucket) learnRejected(n *news, before tally, now time.Time) (stop bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.record(b.view())
	now = b.now(now)
	b.joint.crew.heard(n, now)
	if b.site.tracker.Mode != Full {
		return false
	}
	if b.last.After(before.since) { // b has counted itself
		before = tally{}
	}
	e := b.estimator(before, now)
	if e == nil {
		return false
	}
	e.calm = 0
	if l := &e.loop; l.on() {
		if l.cause == throttle.CauseUnstated {
			l.goal, l.calm = min(l.goal, l.rate), 0
		}
		return false
	}
	if b.gate.ajar {
		return false
	}
	for range min(n.Count, 8) {
		e.marks.add(throttle.CauseUnstated, now)
	}
	if !e.marks.implied(false, b.roundTrip(), now) {
		b.pause(now)
		return false
	}
	e.marks.restart()
	return true
}
