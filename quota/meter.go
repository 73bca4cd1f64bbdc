package quota

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A meter is what a quota allows of one unit other than requests, as tokens of a
// language model. It holds up only those who know what their request will cost:
//
//	told: 1000 tokens left     in flight: 400 + 300     free: 300
//	├───────────────┬───────────┼───────────┤
//	      400            300         300         a request of 500 waits
//
// When too little is left it waits for the reset, or for as long as the units were
// seen to take to come back, and then sends one request to see what is left now.
type meter struct {
	site   *site
	unit   string
	policy string

	mu     sync.Mutex
	flight flight
	extra  int64 // units in flight beyond one for each claim
	told   []told
	last   time.Time

	dropped bool // with its bucket
}

const maxMeters = 8 // units of one quota

// DemandUnits returns the limit that must admit req because it takes n of a unit that the
// server counts in addition to requests, such as "tokens" or "points". The name of the unit is
// that of [headers.Limit.Unit]. Units that the server does not report are not limited. The
// Demand has no Limiter if n is less than 1.
func (t *Tracker) DemandUnits(req *http.Request, unit string, n int64) throttle.Demand {
	if n < 1 || t.Mode == Disabled {
		return throttle.Demand{}
	}
	m := t.siteOf(req).bucket(req).meter(unit)
	if m == nil {
		return throttle.Demand{}
	}
	return throttle.Demand{Limiter: m, Cost: n}
}

// meter returns the meter of unit, nil if there are too many.
func (b *bucket) meter(unit string) *meter {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.meters {
		if m.unit == unit {
			return m
		}
	}
	if len(b.meters) == maxMeters || b.dropped {
		return nil
	}
	m := &meter{site: b.site, unit: strings.Clone(unit), policy: b.site.names.quota + " of " + unit}
	if !b.site.budget.take(m.bytes()) {
		return nil
	}
	b.meters = append(b.meters, m)
	return m
}

// Reserve implements throttle.Limiter.
func (m *meter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now(c.Now)
	d := throttle.Decision{OK: true, Policy: m.policy, At: now}
	f := m.inUnits()
	for i := range m.told {
		t := &m.told[i]
		d.Limit, d.Remaining, d.ResetAfter = max(t.limit, 1), max(t.left(now)-f.open, 0), max(t.reset.Sub(now), 0)
		if d.Wait, d.OK = m.check(t, n, now, &f); !d.OK {
			d.ServerImposed = true
			return d, nil
		}
	}
	if c.DryRun {
		return d, nil
	}
	for i := range m.told {
		if t := &m.told[i]; !t.probe && !now.Before(t.reset) && m.free(t, now, &f) < n {
			t.probe, t.seen = true, f.sent
		}
	}
	d.Grant = m.flight.add()
	m.extra += n - 1
	m.last = now
	return d, nil
}

// check reports whether n units of t may be taken, and if not, how long until; 0:
// when an answer has come.
func (m *meter) check(t *told, n int64, now time.Time, f *flight) (wait time.Duration, ok bool) {
	free := m.free(t, now, f)
	n = min(n, max(t.limit-m.site.tracker.use().kept(t.limit), 1)) // more than all is had for all
	switch {
	case t.probe:
		return 0, f.after(t.seen) == 0
	case free >= n:
		return 0, true
	case !now.Before(t.reset):
		return 0, f.open == 0 || t.left(now) <= f.open
	}
	wait = t.reset.Sub(now)
	if flow := t.refill.until(free-n+1, t.at, now); flow > 0 {
		wait = min(wait, flow)
	}
	return wait, false
}

func (m *meter) free(t *told, now time.Time, f *flight) int64 {
	return t.left(now) - f.open - m.site.tracker.use().kept(t.limit)
}

// inUnits returns the flight with its open claims counted in units.
func (m *meter) inUnits() flight {
	f := m.flight
	f.open += m.extra
	return f
}

// done ends claim k of n units.
func (m *meter) done(k uint64, n int64) bool {
	if !m.flight.done(k) {
		return false
	}
	if m.extra -= n - 1; m.flight.open == 0 || m.extra < 0 {
		m.extra = 0 // also of claims that were forgotten
	}
	return true
}

// NonBlocking is the method that throttle.IsNonBlocking calls.
func (*meter) NonBlocking() bool { return true }

// Cancel implements throttle.Limiter.
func (m *meter) Cancel(_ context.Context, c throttle.Claim, d throttle.Decision) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n, err := c.Units(); err == nil && d.OK {
		m.done(d.Grant, n)
	}
}

// Observe implements throttle.Observer. The first feedback on a claim counts as its
// answer.
func (m *meter) Observe(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := c.Units()
	if err != nil || !d.OK || !m.done(d.Grant, n) {
		return
	}
	if f.Outcome == throttle.Accepted {
		for i := range m.told {
			m.told[i].refill.answered += n
		}
	}
	said := m.learn(f.RemoteLimits, d.Grant, m.now(f.Now))
	for i := len(m.told) - 1; i >= 0; i-- {
		t := &m.told[i]
		switch {
		case said[i] || f.Outcome == throttle.Failed:
		case !t.probe:
			t.remaining = max(t.remaining-n, 0)
		case d.Grant > t.seen: // even the probe's answer no longer speaks of it
			m.site.budget.give(bytesOf(m.told[i : i+1]))
			m.told = append(m.told[:i], m.told[i+1:]...)
		}
	}
}

// hearUnits tells the meters of b. It reports whether the units of one are used up.
func (b *bucket) hearUnits(windows []throttle.RemoteLimit, now time.Time) (usedUp bool) {
	for _, m := range b.meters {
		m.hear(windows, now)
		for _, w := range windows {
			usedUp = usedUp || w.Unit == m.unit && !w.RemainingUnknown && w.Remaining <= 0
		}
	}
	return usedUp
}

// hear takes over what the answer to a request of unknown cost says.
func (m *meter) hear(windows []throttle.RemoteLimit, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.learn(windows, 0, m.now(now))
}

// learn takes over what an answer to claim k says, and reports of which limits.
func (m *meter) learn(windows []throttle.RemoteLimit, k uint64, now time.Time) (said [maxTold]bool) {
	f := m.inUnits()
	for _, w := range windows {
		if w.Unit != m.unit || w.RemainingUnknown {
			continue
		}
		if i := m.find(w); i >= 0 {
			said[i] = true
			m.told[i].update(w, k, now, &f)
		}
	}
	return said
}

// find returns the index of the limit that w speaks of; -1 if there is no room.
func (m *meter) find(w throttle.RemoteLimit) int {
	for i := range m.told {
		if m.told[i].name == w.Name && m.told[i].per == w.Per {
			return i
		}
	}
	if m.dropped {
		return -1
	}
	var ok bool
	if m.told, ok = m.site.addTold(m.told, told{name: w.Name, per: w.Per, remaining: w.Limit, metered: true}); !ok {
		return -1
	}
	return len(m.told) - 1
}

func (m *meter) now(given time.Time) time.Time {
	if given.IsZero() {
		given = m.site.tracker.clock().Now()
	}
	return later(given, m.last)
}
