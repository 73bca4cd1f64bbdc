package quota

import (
	"net/http"
	"time"

	"github.com/heed-go/heed/throttle"
)

const (
	readFirst = 16 // answers of a host that are read for hints
	readEvery = 64 // and then one in so many, while there were none
)

// A host that has answered often and has never spoken of a limit is quiet: its
// requests demand nothing, so that most programs pay for no limit where there is
// none. Only their answers are counted, and the time is noted now and then, for the
// day on which one of them is a refusal:
//
//	note              note              note       refused
//	  │◀─ readEvery ───▶│◀─ readEvery ───▶│   some    │
//	                    ├──── accepted in this span ──┤
type quiet struct {
	then, last note // the one before, and the latest
}

// A note is how many answers had been counted at a time.
type note struct {
	at time.Time // zero: none yet
	n  uint32
}

// worthReading counts a good answer, and reports whether it may bring hints.
func (s *site) worthReading() bool {
	if s.hinted.Load() {
		return true
	}
	n := s.answers.Add(1)
	return n <= readFirst || n%readEvery == 0
}

// heed takes over what an answer says. asked is the quota that granted the
// request; nil: none was asked, since the host was quiet.
func (s *site) heed(req *http.Request, asked *bucket, f *throttle.Feedback) {
	if len(f.RemoteLimits) > 0 {
		s.hinted.Store(true)
	}
	if len(f.RemoteLimits) == 0 && f.Outcome != throttle.Throttled {
		if asked == nil {
			s.note(f.Now)
		}
		return
	}
	s.silent.Store(false)
	learned := *f // what the quota is to learn from
	if f.Outcome == throttle.Throttled && isEstimated(f.Cause) && !s.isEvidence(req, asked, f) {
		learned.Outcome = throttle.Accepted
		if len(f.RemoteLimits) == 0 {
			return // it concerns no route more than another
		}
	}
	switch {
	case asked == nil:
		s.rouse(req, &learned)
	case !s.place(req, asked, &learned):
		f.RemoteLimits = nil // they speak of another quota, which has been told
	}
	s.publishQuota(req, asked, f.Now)
}

// isEvidence takes in a rejection that states nothing, and reports whether there is
// evidence to stop. Suspected causes were taken in by consider, and never stop a quota.
func (s *site) isEvidence(req *http.Request, asked *bucket, f *throttle.Feedback) bool {
	return (f.Cause == throttle.CauseUnstated || f.Cause == throttle.CauseRetryNow) && s.tracker.Mode == Full && s.suspect(req, asked, f)
}

// note notes the time.
func (s *site) note(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet.then, s.quiet.last = s.quiet.last, note{now, s.answers.Load()}
}

// rouse takes over the response that ends the quiet of a host.
func (s *site) rouse(req *http.Request, f *throttle.Feedback) {
	b := s.fresh.Load()
	if home := s.homeOf(req); home != nil {
		b = home
	}
	if s.place(req, b, f) && len(f.RemoteLimits) > 0 {
		b.hear(f.RemoteLimits, f.Now)
	}
	if f.Outcome == throttle.Throttled {
		b.startle(f, s.accepted(f.Now))
	}
}

// accepted returns what was accepted since the note before the latest.
func (s *site) accepted(now time.Time) tally {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.quiet.then
	if n.at.IsZero() {
		n = s.quiet.last
	}
	if n.at.IsZero() {
		return tally{since: now}
	}
	return tally{since: n.at, ok: int64(s.answers.Load() - n.n)}
}

// shut closes all quotas of s but asked, which observes the rejection as usual: the
// server says that it is meant for all that the account asks for.
func (s *site) shut(asked *bucket, f *throttle.Feedback) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := throttle.Feedback{Now: f.Now, Outcome: f.Outcome, Cause: throttle.CauseStated, RetryAfter: f.RetryAfter}
	for _, b := range append([]*bucket{s.fresh.Load()}, s.pools...) {
		if b != asked {
			b.startle(&all, tally{since: f.Now})
		}
	}
}

// suspect takes in a response that may be a rejection and states nothing, and reports
// whether there is evidence to stop.
func (s *site) suspect(req *http.Request, asked *bucket, f *throttle.Feedback) (stop bool) {
	b, before := asked, tally{}
	if b == nil {
		b, before = s.bucket(req), s.accepted(f.Now)
	}
	stop = b.suspect(f, before, asked != nil)
	if s.id != "" && f.Cause == throttle.CauseUnstated {
		b.rejects(s.route(req))
	}
	if asked == nil && !stop && f.Cause == throttle.CauseUnstated {
		b.mu.Lock()
		defer b.mu.Unlock()
		defer b.record(b.view())
		if now := b.now(f.Now); b.est != nil && !b.gate.ajar && !b.est.loop.on() {
			b.pause(now)
		}
	}
	return stop
}

// startle shuts the gate because of the answer to a request that b was not asked
// for. Of several such answers the first counts: the others are of the same burst.
func (b *bucket) startle(f *throttle.Feedback, accepted tally) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.record(b.view())
	n, now := uint64(0), b.now(f.Now)
	if !b.gate.ajar && !now.Before(b.gate.until) {
		n = b.gate.round + 1
		b.flight.sent = max(b.flight.sent, n) // it takes the place of a claim
		if accepted.ok > 0 {
			b.span = accepted
		}
	}
	if isEstimated(f.Cause) && !explains(f.RemoteLimits) {
		b.estimator(accepted, now)
		b.stop(n, now)
		return
	}
	b.throttled(n, *f, explains(f.RemoteLimits), now)
}
