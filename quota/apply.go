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
	wasSilent, accepted := u.Kind != UpdateJoin && ep.unlimited.Swap(false), ep.accepted(now)
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.record(q.view())
	now = q.now(now)
	if wasSilent {
		q.span = accepted
	}
	q.shared.peers.add(&u, now)
	q.applyLimits(u.Limits, now)
	switch u.Kind {
	case UpdateHold:
		q.applyHold(&u, now)
	case UpdateProbe:
		q.applyProbe(now)
	case UpdateRelease:
		return q.applyRelease(now.Add(-u.Wait), now)
	}
	return len(u.Limits) > 0 // a window may have begun
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

// applyLimits takes over what is left of the limits. In a window that is known, it can only be
// less, and the reset stays as it is: it would move by the transmission time with each update.
func (q *quota) applyLimits(limits []throttle.RemoteLimit, now time.Time) {
	for _, l := range limits {
		i := q.find(l)
		if i < 0 {
			continue
		}
		e := &q.estimates[i]
		if ahead := resetOf(l, now).Sub(e.reset); now.Before(e.reset) && -tolerance < ahead && ahead < tolerance {
			l.ResetAfter = e.reset.Sub(now)
		}
		e.carryJitter(now, q.inFlight.open)
		e.update(l, 0, now, &q.inFlight)
	}
	q.markLimitsKnown(now)
}

// applyHold holds requests until the end of the hold.
func (q *quota) applyHold(u *Update, now time.Time) {
	if u.Wait == 0 || !u.Stated && q.endpoint.tracker.Mode != Full {
		return // it is over, or an estimate of another process
	}
	h, s, end := &q.hold, q.shared, now.Add(u.Wait)
	random := q.endpoint.tracker.random()
	delayed := func(t time.Time) time.Time { return t.Add(minFollow + time.Duration(random*float64(moreFollow))) }
	h.estimated = !u.Stated
	switch {
	case !h.active, !now.Before(h.until): // not held until now
		h.active, h.closedAt, h.lastSent, h.closings = true, now, q.inFlight.sent, h.closings+1
		h.until, s.follows = delayed(end), true
		if !u.Stated && !explains(u.Limits) {
			q.followEstimate(now)
		}
	case end.Sub(h.until) > tolerance:
		h.until, s.follows = delayed(end), true
	case u.Sender < q.endpoint.tracker.sharing.self && !s.follows:
		// Both processes were rejected at the same time, and one of them sends the probe.
		h.until, s.follows = delayed(later(h.until, end)), true
	}
	s.markHoldKnown(h)
}

// followEstimate prepares the rate loop, for which another process had evidence. If it runs
// already, only the rate of the process that was rejected is lowered.
func (q *quota) followEstimate(now time.Time) {
	if inf := q.infer(acceptedSpan{}, now); inf != nil && !inf.loop.on() {
		inf.beforeStop, inf.pending, inf.cut = q.span, true, concurrencyCut{}
		inf.beforeStop.until = now
	}
}

// applyProbe holds requests until the result of the probe of another process is known, unless
// a probe of ours is in flight.
func (q *quota) applyProbe(now time.Time) {
	h := &q.hold
	if !h.active || q.inFlight.after(h.lastSent) > 0 {
		return
	}
	h.until = later(h.until, now.Add(probeTime+time.Duration(q.endpoint.tracker.random()*float64(probeTime))))
	q.shared.markHoldKnown(h)
}

// applyRelease ends the hold, because a probe that was sent at probed was accepted. It remains if
// it began later, or if its end is much later.
func (q *quota) applyRelease(probed, now time.Time) (released bool) {
	h := &q.hold
	if !h.active || h.closedAt.After(probed) || h.until.Sub(now) > 2*probeTime+tolerance {
		return false
	}
	h.end()
	q.shared.follows = false
	if h.until.After(now) {
		h.until = now
	}
	if q.released(now); q.inference != nil && q.inference.loop.on() {
		// All processes receive it at the same time, and must not send at the same time.
		q.inference.loop.next = now.Add(time.Duration(q.endpoint.tracker.random() / q.inference.loop.rate * 1e9))
	}
	q.shared.markHoldKnown(h)
	return true
}

// applyRejections takes in rejections of another process as evidence, and holds the quota if that
// suffices.
func (ep *endpoint) applyRejections(u *Update, now time.Time) {
	q, _ := ep.lookUp(u.Route, nil)
	ep.unlimited.Store(false)
	if !q.countRejections(u, ep.accepted(now), now) {
		return
	}
	f := throttle.Feedback{Now: now, Outcome: throttle.Throttled, Cause: throttle.CauseUnstated}
	if q = ep.quotaOfUpdate(u.Route, &f); q != nil {
		q.rejectedExternally(&f, acceptedSpan{})
	}
}

// countRejections adds the rejections to the evidence, and reports whether it suffices for a
// stop. While there is a rate loop, all processes together have reached the limit, so the rate
// does not grow for a while.
func (q *quota) countRejections(u *Update, before acceptedSpan, now time.Time) (stop bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.record(q.view())
	now = q.now(now)
	q.shared.peers.add(u, now)
	if q.endpoint.tracker.Mode != Full {
		return false
	}
	if q.lastGranted.After(before.since) { // b has counted what was accepted
		before = acceptedSpan{}
	}
	inf := q.infer(before, now)
	if inf == nil {
		return false
	}
	inf.successesInRow = 0
	switch l := &inf.loop; {
	case l.on() && l.cause == throttle.CauseUnstated:
		l.goal, l.sinceRejection = min(l.goal, l.rate), 0
		return false
	case l.on(), q.hold.active:
		return false
	}
	for range min(u.Rejections, 8) {
		inf.evidence.add(throttle.CauseUnstated, now)
	}
	if !inf.evidence.impliesLimit(false, q.roundTrip(), now) {
		q.cutConcurrency(now)
		return false
	}
	inf.evidence.restart()
	return true
}

// endFetch lets requests pass that waited for what others know. It reports whether there may be
// any.
func (ep *endpoint) endFetch() (sooner bool) {
	ep.mu.Lock()
	defer ep.mu.Unlock()
	for _, q := range append([]*quota{ep.unknown.Load()}, ep.quotas...) {
		q.mu.Lock()
		if s := q.shared; !s.fetch.IsZero() && q.hold.until.Equal(s.fetch) { // nothing else holds it
			q.hold.until, sooner = time.Time{}, true
		}
		q.shared.fetch = time.Time{}
		q.mu.Unlock()
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
func (q *quota) leaveToPeers(now time.Time) (wait time.Duration, ok bool) {
	p := &q.shared.peers
	p.all = slices.DeleteFunc(p.all, func(o peer) bool { return !now.Before(o.until) })
	if len(p.all) == 0 {
		return 0, true
	}
	if _, open := q.hold.check(now, &q.inFlight); !open {
		return 0, true // the hold is the reason to wait
	}
	left := q.leastLeft(now)
	if left <= 0 || left == math.MaxInt64 {
		return 0, true // parts do not matter
	}
	if now.Sub(p.rounded) >= roundEvery {
		p.rounding, p.rounded = q.endpoint.tracker.random(), now
	}
	part := int64(float64(left)/float64(2*(len(p.all)+1)) + p.rounding)
	switch {
	case q.inFlight.open < part:
		return 0, true
	case q.inFlight.open > 0:
		return 0, false
	}
	return p.rounded.Add(roundEvery).Sub(now), false
}

// leastLeft returns what is left of the limit with the fewest units, as of now; MaxInt64: there is
// none, or all begin again.
func (q *quota) leastLeft(now time.Time) int64 {
	least := int64(math.MaxInt64)
	for i := range q.estimates {
		if e := &q.estimates[i]; !e.probe && !e.concurrency.confirmed && now.Before(e.reset) {
			least = min(least, e.left(now))
		}
	}
	return least
}
