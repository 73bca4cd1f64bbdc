package quota

import (
	"time"

	"github.com/heed-go/heed/throttle"
)

// Those who hear that a gate is shut leave the probe to who told them: they come a
// little later, and if by then they hear that it is on its way, they wait for its
// answer. If that does not come they go themselves, each at its own moment.
//
//	told      shut ────────── until ▶ probe ──────────▶ good
//	others    shut ────────── until ── lag ── hold ──┐    │
//	                                                 └◀───┘ open
const (
	minLag  = 50 * time.Millisecond
	moreLag = 200 * time.Millisecond // at most, at random
	hold    = time.Second            // for the answer to another's probe, and as much more at random
)

// learnOf takes over what another process says as of now. It reports whether
// requests may go earlier than they were told.
func (s *site) learnOf(n news, now time.Time) (sooner bool) {
	if n.Say == sayRejected {
		s.learnRejected(&n, now)
		return false
	}
	windows := n.windows()
	if len(windows) > 0 {
		s.hinted.Store(true)
	}
	var f throttle.Feedback
	f.Now, f.RemoteLimits = now, windows
	if n.Say == sayShut && n.Wait > 0 {
		f.Outcome = throttle.Throttled
	}
	b := s.homeTold(n.Route, &f)
	if b == nil {
		return false
	}
	quiet := n.Say != sayHere && s.silent.Swap(false)
	accepted := s.accepted(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.record(b.view())
	if now = b.now(now); quiet {
		b.span = accepted
	}
	b.joint.crew.heard(&n, now)
	b.hearStocks(windows, now)
	switch n.Say {
	case sayShut:
		b.hearShut(n, explains(windows), now)
	case sayProbe:
		b.hearProbe(now)
	case sayOpen:
		return b.hearOpen(now.Add(-n.Wait.duration()), now)
	}
	return len(windows) > 0 // a window may have begun anew
}

// homeTold returns the quota that another process speaks of; nil if there is no
// telling.
func (s *site) homeTold(route uint64, f *throttle.Feedback) *bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	if route == 0 {
		return s.fresh.Load() // it speaks of none
	}
	home := s.settleRoute(route, s.fresh.Load(), f)
	if home != nil {
		s.remember(route, home)
	}
	return home
}

// hearStocks takes over what is left of the limits. In a window that is known it
// may only be less, and the reset stays as it is: it would come later with each
// message by the time that this takes.
func (b *bucket) hearStocks(windows []throttle.RemoteLimit, now time.Time) {
	for _, w := range windows {
		i := b.find(w)
		if i < 0 {
			continue
		}
		t := &b.told[i]
		if ahead := resetOf(w, now).Sub(t.reset); now.Before(t.reset) && -slack < ahead && ahead < slack {
			w.ResetAfter = t.reset.Sub(now)
		}
		t.advance(now, b.flight.open)
		t.update(w, 0, now, &b.flight)
	}
	b.stocks(now)
}

// hearShut shuts the gate.
func (b *bucket) hearShut(n news, explained bool, now time.Time) {
	if n.Wait == 0 || !n.Told && b.site.tracker.Mode != Full {
		return // it is over, or an estimate of another process
	}
	g, until := &b.gate, now.Add(n.Wait.duration())
	g.estimated = !n.Told
	switch {
	case !g.ajar, !now.Before(g.until): // news to us
		g.ajar, g.at, g.round, g.strikes = true, now, b.flight.sent, g.strikes+1
		g.until = until.Add(b.lag())
		b.joint.follows = true
		b.follow(n.Told, explained, now)
	case until.Sub(g.until) > slack:
		g.until, b.joint.follows = until.Add(b.lag()), true
	case n.From < b.site.tracker.convoy.self && !b.joint.follows:
		// Both were refused at once. Only one is to send the probe.
		g.until, b.joint.follows = later(g.until, until).Add(b.lag()), true
	}
	b.joint.known.gate(g)
}

// follow prepares the estimate for which another process had evidence.
func (b *bucket) follow(stated, explained bool, now time.Time) {
	if explained || stated {
		return
	}
	e := b.estimator(tally{}, now)
	if e == nil || e.loop.on() {
		return // the process that was rejected goes slower, and that is enough
	}
	e.first, e.pending, e.caution = b.span, true, caution{}
	e.first.until = now
}

func (b *bucket) lag() time.Duration {
	return minLag + time.Duration(b.site.tracker.random()*float64(moreLag))
}

// hearProbe waits for the answer to another's probe, unless ours is on its way, too.
func (b *bucket) hearProbe(now time.Time) {
	g := &b.gate
	if !g.ajar || b.flight.after(g.round) > 0 {
		return
	}
	g.until = later(g.until, now.Add(hold+time.Duration(b.site.tracker.random()*float64(hold))))
	b.joint.known.gate(g)
}

// hearOpen opens the gate, as a probe that was sent at probed was answered well. It
// stays shut if it was shut since then, or if we were told to wait for much longer.
func (b *bucket) hearOpen(probed, now time.Time) (opened bool) {
	g := &b.gate
	if !g.ajar || g.at.After(probed) || g.until.Sub(now) > 2*hold+slack {
		return false
	}
	g.open()
	b.joint.follows = false
	if g.until.After(now) {
		g.until = now
	}
	if b.opened(now); b.est != nil && b.est.loop.on() {
		// All processes receive it at the same time, and must not go on at the same time.
		b.est.loop.next = now.Add(time.Duration(b.site.tracker.random() / b.est.loop.rate * 1e9))
	}
	b.joint.known.gate(g)
	return true
}

// endRecall lets requests go that waited for what others know. It reports whether
// there may be any.
func (s *site) endRecall() (sooner bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sooner = s.fresh.Load().endRecall()
	for _, b := range s.pools {
		sooner = b.endRecall() || sooner
	}
	return sooner
}

// awaitRecall lets nothing go until others have said what they know, or until then.
func (b *bucket) awaitRecall(until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gate.until, b.joint.recall = until, until
}

// endRecall ends that wait, and reports whether it lasted until now.
func (b *bucket) endRecall() (ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if ended = b.gate.until.Equal(b.joint.recall) && !b.joint.recall.IsZero(); ended {
		b.gate.until = time.Time{}
	}
	b.joint.recall = time.Time{}
	return ended
}
