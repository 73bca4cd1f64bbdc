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
	if len(f.Windows) > 0 {
		s.hinted.Store(true)
	}
	if len(f.Windows) == 0 && f.Outcome != throttle.Throttled {
		if asked == nil {
			s.note(f.Now)
		}
		return
	}
	s.silent.Store(false)
	switch {
	case asked == nil:
		s.rouse(req, f)
	case !s.place(req, asked, f):
		f.Windows = nil // they speak of another quota, which has been told
	}
	s.tell(req, asked, f)
}

// note notes the time.
func (s *site) note(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet.then, s.quiet.last = s.quiet.last, note{now, s.answers.Load()}
}

// rouse takes over the answer that ends the quiet of a host.
func (s *site) rouse(req *http.Request, f *throttle.Feedback) {
	b := s.fresh.Load()
	if home := s.homeOf(req); home != nil {
		b = home
	}
	if s.place(req, b, f) && len(f.Windows) > 0 {
		b.hear(f.Windows, f.Now)
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

// shut closes all quotas of s but asked, which hears of the refusal as usual: the
// server says that it is meant for all that the account asks for.
func (s *site) shut(asked *bucket, f *throttle.Feedback) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := throttle.Feedback{Now: f.Now, Outcome: f.Outcome, RetryAfter: f.RetryAfter}
	for _, b := range append([]*bucket{s.fresh.Load()}, s.pools...) {
		if b != asked {
			b.startle(&all, tally{since: f.Now})
		}
	}
}

// startle shuts the gate because of the answer to a request that b was not asked
// for. Of several such answers the first counts: the others are of the same burst.
func (b *bucket) startle(f *throttle.Feedback, accepted tally) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, now := uint64(0), b.now(f.Now)
	if !b.gate.ajar && !now.Before(b.gate.until) {
		n = b.gate.round + 1
		b.flight.sent = max(b.flight.sent, n) // it takes the place of a claim
		b.pace.span = accepted
	}
	if b.gate.shut(n, now, f.RetryAfter, b.spread(), b.flight.sent, b.site.tracker.random()) {
		b.refused(explains(f.Windows), now, f.RetryAfter)
	}
}
