package quota

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A bucket is one quota of a server as a throttle.Limiter: it decides by what the
// server told and by what it answered.
//
//	gate      the server said stop              shut until told, then one probe
//	start     nothing is known of it yet        few at a time, more with each good answer
//	told      it said how much is left          no more than that
//	pace      it refused and said nothing       evenly, at the rate it accepted
type bucket struct {
	site *site

	mu       sync.Mutex
	flight   flight
	gate     gate
	pace     pace
	told     []told
	meters   []*meter
	good     int // good answers, up to knownAfter
	trusted  bool
	overload overload
	strain   strain
	last     time.Time // latest reading of the clock granted at
	joint    joint
}

// names are the policies of a bucket's decisions.
type names struct{ quota, gate, pace, start, strain string }

func newNames(host string) *names {
	return &names{quota: host + ": quota", gate: host + ": told to wait", pace: host + ": pace", start: host + ": first answers", strain: host + ": late answers"}
}

// knownAfter good answers a host counts as known, and requests in flight to it
// are no longer counted. When all of a crowd of trustedAfter has been served, the
// next crowd does not have to begin anew.
const (
	knownAfter   = 100
	trustedAfter = 50
)

// mostMore slots than at the start there can be. With 14 more than 4, fifty calls
// at once to a server without limits still take five round trips.
const mostMore = 14

// Reserve implements throttle.Limiter. The Wait of a refusal is 0 if it ends with
// an answer that is still to come.
func (b *bucket) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reserve(c)
}

func (b *bucket) reserve(c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	now := b.now(c.Now)
	d := throttle.Decision{Policy: b.site.names.quota, At: now}
	b.describe(&d, now)
	d.Policy, d.Wait, d.OK = b.check(n, now)
	paced := d.Policy == b.site.names.pace // which is what we made of refusals without a word
	d.Told = !d.OK && !paced
	if c.DryRun {
		return d, nil
	}
	if !d.OK {
		b.pace.waited = b.pace.waited || paced
		return d, nil
	}
	for i := range b.told {
		b.told[i].granted(now, &b.flight, b.site.tracker.use())
	}
	d.Grant = b.flight.add()
	b.strain.granted(d.Grant, b.flight.open, int64(b.site.tracker.start()), now)
	for i := range b.told {
		b.site.tracker.use().took(&b.told[i], now, &b.flight)
		b.told[i].others.took(d.Grant, now, b.site.tracker.random())
	}
	b.pace.sent(n, now, later(b.last, b.gate.until))
	b.last = now
	return d, nil
}

// check asks the four in turn. It changes nothing.
func (b *bucket) check(n int64, now time.Time) (policy string, wait time.Duration, ok bool) {
	if wait, ok = b.gate.check(now, &b.flight); !ok {
		return b.site.names.gate, wait, false
	}
	if b.good < knownAfter && !b.trusted && b.flight.open >= b.slots() {
		return b.site.names.start, 0, false
	}
	if b.strain.full(b.flight.open) && b.site.tracker.start() > 0 {
		return b.site.names.strain, 0, false
	}
	for i := range b.told {
		free, w := b.told[i].free(now, &b.flight, b.site.tracker.use())
		if free < min(n, max(b.told[i].limit, 1)) {
			return b.site.names.quota, w, false
		}
	}
	if wait, ok = b.pace.check(now); !ok {
		return b.site.names.pace, wait, false
	}
	return b.site.names.quota, 0, true
}

// slots is how many requests may be in flight to a host that is not known yet:
// one more for every two good answers, up to a point. All that is in flight when a
// limit is met is wasted, however many good answers came before.
func (b *bucket) slots() int64 {
	start := b.site.tracker.start()
	if start < 0 {
		return b.flight.open + 1
	}
	if len(b.told) > 0 {
		return int64(start + b.good)
	}
	return int64(start + min(b.good/2, mostMore))
}

// Local implements throttle.Local.
func (*bucket) Local() bool { return true }

// Cancel implements throttle.Limiter: the claim was never sent.
func (b *bucket) Cancel(_ context.Context, _ throttle.Claim, d throttle.Decision) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d.OK {
		b.flight.done(d.Grant)
		b.strain.cancelled(d.Grant)
	}
}

// Observe implements throttle.Observer. The first feedback on a claim counts as
// its answer.
func (b *bucket) Observe(_ context.Context, _ throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !d.OK || !b.flight.done(d.Grant) {
		return
	}
	b.relate(d.Grant, f.Outcome == throttle.Failed, f.Now)
	if f.Outcome == throttle.Accepted && len(f.Windows)+len(b.told) == 0 && !b.gate.ajar {
		b.accepted() // nothing to learn from, not even the time
		return
	}
	now := b.now(f.Now)
	explained := b.learn(d.Grant, f, now)
	switch f.Outcome {
	case throttle.Throttled:
		if b.gate.shut(d.Grant, now, f.RetryAfter, b.spread(), b.flight.sent, b.site.tracker.random()) {
			b.refused(explained, now, f.RetryAfter)
		}
	case throttle.Accepted:
		if b.gate.good(d.Grant) {
			b.pace.opened(now, b.last, &b.gate)
		}
		b.accepted()
	}
}

func (b *bucket) accepted() {
	b.pace.accepted()
	b.overload.accepted()
	if b.good == knownAfter {
		return
	}
	b.good++
	b.trusted = b.trusted || b.good >= trustedAfter && b.flight.open == 0
	if b.good == knownAfter && len(b.told) == 0 && b.gate.round == 0 && !b.site.split.Load() {
		b.site.silent.Store(true)
	}
}

// refused learns from a refusal, which a told limit explains or not.
func (b *bucket) refused(explained bool, now time.Time, told time.Duration) {
	if !explained {
		if b.overload.teaches() {
			b.pace.refuse(now, told)
		}
		return
	}
	for i := range b.told {
		if b.told[i].remaining == 0 {
			b.told[i].refill.refused()
		}
	}
}

// learn takes over what the answer says of the server's limits. It reports
// whether one of them is used up, which explains a refusal.
func (b *bucket) learn(n uint64, f throttle.Feedback, now time.Time) (explained bool) {
	var said [maxTold]bool
	for i := range b.told {
		if f.Outcome == throttle.Accepted {
			b.told[i].accepted()
		}
	}
	for _, w := range f.Windows {
		if !countsRequests(w) {
			continue
		}
		if i := b.find(w); i >= 0 {
			said[i] = true
			if f.Outcome == throttle.Throttled {
				b.told[i].slots.refuted()
			}
			b.told[i].update(w, n, now, &b.flight)
		}
	}
	for i := len(b.told) - 1; i >= 0; i-- {
		if !said[i] && f.Outcome != throttle.Failed && b.told[i].spend(n) {
			b.told = append(b.told[:i], b.told[i+1:]...)
		}
	}
	return explains(f.Windows) || b.hearUnits(f.Windows, now)
}

// explains reports whether one of windows is used up.
func explains(windows []throttle.Window) bool {
	return slices.ContainsFunc(windows, func(w throttle.Window) bool { return countsRequests(w) && w.Remaining <= 0 })
}

// find returns the index of the limit that w speaks of, which may be new; -1 if
// there is no room for it.
func (b *bucket) find(w throttle.Window) int {
	for i := range b.told {
		if b.told[i].name == w.Name && b.told[i].per == w.Per {
			return i
		}
	}
	if len(b.told) == maxTold {
		return -1
	}
	b.told = append(b.told, told{name: w.Name, per: w.Per, remaining: w.Limit, slots: slotsOf(w)})
	return len(b.told) - 1
}

// describe adds the told limit with the fewest units left.
func (b *bucket) describe(d *throttle.Decision, now time.Time) {
	for i := range b.told {
		t := &b.told[i]
		if left := max(t.remaining-b.flight.open, 0); d.Limit == 0 || left < d.Remaining {
			d.Limit, d.Remaining, d.ResetAfter = max(t.limit, 1), left, max(t.reset.Sub(now), 0)
		}
	}
}

// hear takes over what the answer to a request that another bucket granted says.
func (b *bucket) hear(windows []throttle.Window, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range windows {
		if !countsRequests(w) {
			continue
		}
		if i := b.find(w); i >= 0 {
			b.told[i].update(w, 0, now, &b.flight)
		}
	}
	b.hearUnits(windows, now)
}

// hasTold reports whether one of windows may well be a limit of b: of the same
// name, or without one just as large, with the same reset, and no more left than b
// knows of.
func (b *bucket) hasTold(windows []throttle.Window, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range windows {
		for i := range b.told {
			t := &b.told[i]
			if countsRequests(w) && t.name == w.Name && t.per == w.Per &&
				(w.Name != "" || t.limit == t.price.in(w).Limit && t.near(t.price.in(w), now)) {
				return true
			}
		}
	}
	return false
}

// elsewhere reports whether windows name limits that b does not have.
func (b *bucket) elsewhere(windows []throttle.Window) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range windows {
		for i := range b.told {
			if b.told[i].name == w.Name {
				return false
			}
		}
	}
	return len(b.told) > 0
}

// heldBack reports whether a refusal holds b back as of now.
func (b *bucket) heldBack(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.gate.ajar || b.gate.until.After(now) || b.pace.rate > 0
}

func (b *bucket) goodAnswers() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.good
}

// blank reports whether nothing would be lost if the bucket were forgotten.
func (b *bucket) blank() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flight.open == 0 && len(b.told)+len(b.meters) == 0 && !b.gate.ajar && b.pace.rate == 0
}

// now returns the reading a decision is based on.
func (b *bucket) now(given time.Time) time.Time {
	if given.IsZero() {
		given = b.site.tracker.clock().Now()
	}
	if given.Before(b.last) {
		return b.last
	}
	return given
}
