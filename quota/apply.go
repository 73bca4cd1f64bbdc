package quota

import (
	"math"
	"slices"
	"time"

	"github.com/heed-go/heed/throttle"
)

const (
	minFollow  = 50 * time.Millisecond // that a probe comes after that of the process that was rejected
	moreFollow = 200 * time.Millisecond
	probeTime  = time.Second // for the result of the probe of another process, and as much more at random
)

// apply takes in an update of another process, as of now. It reports whether requests may be sent
// earlier than before.
func (s *site) apply(u Update, now time.Time) (sooner bool) {
	switch u.Kind {
	case UpdateFetched:
		return s.endFetch()
	case UpdateRejections:
		s.applyRejections(&u, now)
		return false
	}
	f := throttle.Feedback{Now: now, RemoteLimits: u.Limits}
	if len(u.Limits) > 0 {
		s.hinted.Store(true)
	}
	if u.Kind == UpdateHold && u.Wait > 0 {
		f.Outcome = throttle.Throttled
	}
	b := s.quotaOfUpdate(u.Route, &f)
	if b == nil {
		return false
	}
	wasSilent, accepted := u.Kind != UpdateJoin && s.silent.Swap(false), s.accepted(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.record(b.view())
	now = b.now(now)
	if wasSilent {
		b.span = accepted
	}
	b.shared.peers.add(&u, now)
	b.applyLimits(u.Limits, now)
	switch u.Kind {
	case UpdateHold:
		b.applyHold(&u, now)
	case UpdateProbe:
		b.applyProbe(now)
	case UpdateRelease:
		return b.applyRelease(now.Add(-u.Wait), now)
	}
	return len(u.Limits) > 0 // a window may have begun
}

// quotaOfUpdate returns the quota that an update of route concerns; nil if that cannot be known.
// f is the response that the other process received.
func (s *site) quotaOfUpdate(route uint64, f *throttle.Feedback) *bucket {
	s.mu.Lock()
	defer s.mu.Unlock()
	if route == 0 {
		return s.fresh.Load()
	}
	b := s.settleRoute(route, s.fresh.Load(), f)
	if b != nil {
		s.remember(route, b)
	}
	return b
}

// applyLimits takes over what is left of the limits. In a window that is known, it can only be
// less, and the reset stays as it is: it would move by the transmission time with each update.
func (b *bucket) applyLimits(limits []throttle.RemoteLimit, now time.Time) {
	for _, l := range limits {
		i := b.find(l)
		if i < 0 {
			continue
		}
		t := &b.told[i]
		if ahead := resetOf(l, now).Sub(t.reset); now.Before(t.reset) && -slack < ahead && ahead < slack {
			l.ResetAfter = t.reset.Sub(now)
		}
		t.advance(now, b.flight.open)
		t.update(l, 0, now, &b.flight)
	}
	b.knowLimits(now)
}

// applyHold holds requests until the end of the hold.
func (b *bucket) applyHold(u *Update, now time.Time) {
	if u.Wait == 0 || !u.Stated && b.site.tracker.Mode != Full {
		return // it is over, or an estimate of another process
	}
	g, k, end := &b.gate, b.shared, now.Add(u.Wait)
	random := b.site.tracker.random()
	delayed := func(t time.Time) time.Time { return t.Add(minFollow + time.Duration(random*float64(moreFollow))) }
	g.estimated = !u.Stated
	switch {
	case !g.ajar, !now.Before(g.until): // not held until now
		g.ajar, g.at, g.round, g.strikes = true, now, b.flight.sent, g.strikes+1
		g.until, k.follows = delayed(end), true
		if !u.Stated && !explains(u.Limits) {
			b.followEstimate(now)
		}
	case end.Sub(g.until) > slack:
		g.until, k.follows = delayed(end), true
	case u.Sender < b.site.tracker.sharing.self && !k.follows:
		// Both processes were rejected at the same time, and one of them sends the probe.
		g.until, k.follows = delayed(later(g.until, end)), true
	}
	k.knowHold(g)
}

// followEstimate prepares the rate loop, for which another process had evidence. If it runs
// already, only the rate of the process that was rejected is lowered.
func (b *bucket) followEstimate(now time.Time) {
	if e := b.estimator(tally{}, now); e != nil && !e.loop.on() {
		e.first, e.pending, e.caution = b.span, true, caution{}
		e.first.until = now
	}
}

// applyProbe holds requests until the result of the probe of another process is known, unless
// a probe of ours is in flight.
func (b *bucket) applyProbe(now time.Time) {
	g := &b.gate
	if !g.ajar || b.flight.after(g.round) > 0 {
		return
	}
	g.until = later(g.until, now.Add(probeTime+time.Duration(b.site.tracker.random()*float64(probeTime))))
	b.shared.knowHold(g)
}

// applyRelease ends the hold, because a probe that was sent at probed was accepted. It remains if
// it began later, or if its end is much later.
func (b *bucket) applyRelease(probed, now time.Time) (released bool) {
	g := &b.gate
	if !g.ajar || g.at.After(probed) || g.until.Sub(now) > 2*probeTime+slack {
		return false
	}
	g.open()
	b.shared.follows = false
	if g.until.After(now) {
		g.until = now
	}
	if b.opened(now); b.est != nil && b.est.loop.on() {
		// All processes receive it at the same time, and must not send at the same time.
		b.est.loop.next = now.Add(time.Duration(b.site.tracker.random() / b.est.loop.rate * 1e9))
	}
	b.shared.knowHold(g)
	return true
}

// applyRejections takes in rejections of another process as evidence, and holds the quota if that
// suffices.
func (s *site) applyRejections(u *Update, now time.Time) {
	s.mu.Lock()
	b := s.of(u.Route)
	s.mu.Unlock()
	s.silent.Store(false)
	if !b.countRejections(u, s.accepted(now), now) {
		return
	}
	f := throttle.Feedback{Now: now, Outcome: throttle.Throttled, Cause: throttle.CauseUnstated}
	if b = s.quotaOfUpdate(u.Route, &f); b != nil {
		b.startle(&f, tally{})
	}
}

// countRejections adds the rejections to the evidence, and reports whether it suffices for a
// stop. While there is a rate loop, all processes together have reached the limit, so the rate
// does not grow for a while.
func (b *bucket) countRejections(u *Update, before tally, now time.Time) (stop bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.record(b.view())
	now = b.now(now)
	b.shared.peers.add(u, now)
	if b.site.tracker.Mode != Full {
		return false
	}
	if b.last.After(before.since) { // b has counted what was accepted
		before = tally{}
	}
	e := b.estimator(before, now)
	if e == nil {
		return false
	}
	e.calm = 0
	switch l := &e.loop; {
	case l.on() && l.cause == throttle.CauseUnstated:
		l.goal, l.calm = min(l.goal, l.rate), 0
		return false
	case l.on(), b.gate.ajar:
		return false
	}
	for range min(u.Rejections, 8) {
		e.marks.add(throttle.CauseUnstated, now)
	}
	if !e.marks.implied(false, b.roundTrip(), now) {
		b.pause(now)
		return false
	}
	e.marks.restart()
	return true
}

// endFetch lets requests pass that waited for what others know. It reports whether there may be
// any.
func (s *site) endFetch() (sooner bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range append([]*bucket{s.fresh.Load()}, s.pools...) {
		b.mu.Lock()
		if k := b.shared; !k.fetch.IsZero() && b.gate.until.Equal(k.fetch) { // nothing else holds it
			b.gate.until, sooner = time.Time{}, true
		}
		b.shared.fetch = time.Time{}
		b.mu.Unlock()
	}
	return sooner
}

// peers are the other processes that use a quota. What is left of it is left to all of them: if
// each took it for its own, ten would send ten times as much within one round trip. Therefore each
// has at most an equal part of one half of it in flight. The other half may be in flight already:
// requests are not counted in what is left before they arrive. With each response, what is still
// left is divided again, so that processes that need little leave more to the others:
//
//	left 60    3 in flight in each of ten
//	left 40    2                             (20 were used meanwhile)
//	left 20    1
//	left 4     1 in every fifth
//
// Parts are rounded up or down at random, so that the last few are taken by a few.
type peers struct {
	all      []peer
	rounding float64   // parts whose fraction is larger than 1 - rounding are rounded up
	rounded  time.Time // when rounding was drawn
}

type peer struct {
	id    uint64
	until time.Time // after that it does not count
}

const (
	maxPeers   = 64
	peerGone   = 3 * time.Second // without an update, after a hold or window has ended
	peerMost   = time.Minute     // without an update
	roundEvery = 50 * time.Millisecond
)

// add notes that the sender of u uses the quota. While it waits, no updates of it are expected.
func (p *peers) add(u *Update, now time.Time) {
	wait := time.Duration(0)
	if u.Kind == UpdateHold {
		wait = u.Wait
	}
	for _, l := range u.Limits {
		wait = max(wait, l.ResetAfter)
	}
	until := now.Add(min(wait+peerGone, peerMost))
	for i := range p.all {
		if p.all[i].id == u.Sender {
			p.all[i].until = later(p.all[i].until, until)
			return
		}
	}
	if len(p.all) < maxPeers {
		p.all = append(p.all, peer{u.Sender, until})
	}
}

// leaveToPeers reports whether a claim may be granted as of now, as far as other processes are
// concerned. If not, wait is the time until that may change; 0: when a response arrives.
func (b *bucket) leaveToPeers(now time.Time) (wait time.Duration, ok bool) {
	p := &b.shared.peers
	p.all = slices.DeleteFunc(p.all, func(o peer) bool { return !now.Before(o.until) })
	if len(p.all) == 0 {
		return 0, true
	}
	if _, open := b.gate.check(now, &b.flight); !open {
		return 0, true // the hold is the reason to wait
	}
	left := b.leastLeft(now)
	if left <= 0 || left == math.MaxInt64 {
		return 0, true // parts do not matter
	}
	if now.Sub(p.rounded) >= roundEvery {
		p.rounding, p.rounded = b.site.tracker.random(), now
	}
	part := int64(float64(left)/float64(2*(len(p.all)+1)) + p.rounding)
	switch {
	case b.flight.open < part:
		return 0, true
	case b.flight.open > 0:
		return 0, false
	}
	return p.rounded.Add(roundEvery).Sub(now), false
}

// leastLeft returns what is left of the limit with the fewest units, as of now; MaxInt64: there is
// none, or all begin again.
func (b *bucket) leastLeft(now time.Time) int64 {
	least := int64(math.MaxInt64)
	for i := range b.told {
		if t := &b.told[i]; !t.probe && !t.slots.are && now.Before(t.reset) {
			least = min(least, t.left(now))
		}
	}
	return least
}
