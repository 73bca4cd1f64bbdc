package quota

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A bucket is one quota of a server as a throttle.Limiter: it decides by what the
// server stated and by what it rejected.
//
//	gate      the server stated that to stop      shut until the stated end, then one probe
//	start     nothing is known of it yet          few in flight, more with each success
//	told      it states how much is left          no more than that
//	est       it rejects and states nothing       evenly, at the rate that it accepted
//	strain    it responds late or not at all      no more in flight than before
type bucket struct {
	site  *site
	named bool // it belongs to a quota name: guarded by the lock of site

	mu       sync.Mutex
	flight   flight
	gate     gate
	told     []told
	meters   []*meter
	good     int // successful responses, up to knownAfter
	trusted  bool
	span     tally      // accepted since the last idle time
	est      *estimator // nil: there is nothing to estimate
	strain   strain
	last     time.Time    // latest reading of the clock granted at
	response time.Time    // when the latest response came; zero: none yet
	shared   *sharedState // nil: no Exchange
	dropped  bool         // no route has it any more, and it keeps nothing of what it hears
}

// names are the policies of a bucket's decisions, as users see them in errors and
// traces. The documentation of the package explains them.
type names struct{ host, quota, gate, pace, start, strain string }

func newNames(host string) *names {
	return &names{host: host, quota: host + ": quota", gate: host + ": retry-after", pace: host + ": learned rate", start: host + ": slow start", strain: host + ": slow responses"}
}

// knownAfter good answers a host counts as known, and requests in flight to it
// are no longer counted. When all of a crowd of trustedAfter has been served, the
// next crowd does not have to begin anew.
const (
	knownAfter   = 100
	trustedAfter = 50
)

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
	b.adapt(&c, now)
	b.decide(&d, n, c.DryRun, now)
	if !d.OK || c.DryRun {
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
	b.began(now)
	if b.est != nil && b.est.loop.on() {
		b.est.loop.spend(n, now)
	}
	if b.est != nil {
		b.est.window.granted(d.Grant, now)
	}
	b.last = now
	return d, nil
}

// NonBlocking is the method that throttle.IsNonBlocking calls.
func (*bucket) NonBlocking() bool { return true }

// Cancel implements throttle.Limiter: the claim was never sent.
func (b *bucket) Cancel(_ context.Context, c throttle.Claim, d throttle.Decision) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n, err := c.Units(); err == nil && d.OK && b.flight.done(d.Grant) {
		b.strain.cancelled(d.Grant)
		if b.est != nil {
			b.est.loop.unspend(n)
			b.est.window.canceled(d.Grant)
		}
	}
}

// Observe implements throttle.Observer. The first feedback on a claim counts as
// its answer.
func (b *bucket) Observe(_ context.Context, _ throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	b.observe(d, f)
	b.site.tracker.listeners.deliver()
}

func (b *bucket) observe(d throttle.Decision, f throttle.Feedback) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.record(b.view())
	if !d.OK || !b.flight.done(d.Grant) {
		return
	}
	b.relate(d.Grant, f.Outcome == throttle.Failed, f.Now)
	if f.Outcome == throttle.Accepted && f.Cause == throttle.CauseUnknown && len(f.RemoteLimits)+len(b.told) == 0 && !b.gate.ajar && b.est == nil {
		b.accepted() // nothing to learn from, not even the time
		if b.young() {
			b.response = b.now(f.Now)
		}
		return
	}
	now := b.now(f.Now)
	b.response = now
	explained := b.learn(d.Grant, f, now)
	switch f.Outcome {
	case throttle.Throttled:
		b.throttled(d.Grant, f, explained, now)
	case throttle.Accepted:
		if b.est != nil && f.Cause == throttle.CauseUnknown {
			b.succeeded(d.Grant, now)
		}
		if b.gate.good(d.Grant, b.last) {
			b.opened(now)
		}
		if f.Cause == throttle.CauseUnknown {
			b.accepted()
		}
	}
}

func (b *bucket) accepted() {
	b.span.ok++
	if b.good < knownAfter {
		b.good++
		b.trusted = b.trusted || b.good >= trustedAfter && b.flight.open == 0
	}
	if b.good == knownAfter && b.est == nil && len(b.told) == 0 && b.gate.round == 0 && !b.site.split.Load() {
		b.site.silent.Store(true)
	}
}

// throttled takes in the rejection of claim n, which a stated limit explains or not.
func (b *bucket) throttled(n uint64, f throttle.Feedback, explained bool, now time.Time) {
	cause := f.Cause
	if cause == throttle.CauseUnknown && f.RetryAfter <= 0 && !explained {
		cause = throttle.CauseUnstated // reported by other means than Tracker.Feedback
	}
	switch {
	case b.site.tracker.Mode != Full && isEstimated(cause) && !explained:
	case cause == throttle.CauseRetryNow && !explained:
		if b.est != nil && (b.est.stopNext || b.est.loop.on()) || b.gate.ajar {
			b.rejected(n, throttle.CauseUnstated, now)
		}
	case isEstimated(cause) && !explained:
		b.rejected(n, cause, now)
	case !b.gate.shut(n, now, b.shutting(f.RetryAfter)) && explained:
	case !explained:
		b.stated(n, f.RetryAfter, now)
	default:
		for i := range b.told {
			if b.told[i].remaining == 0 {
				b.told[i].refill.refused()
			}
		}
	}
}

// shutting says how to shut the gate after a rejection that states retryAfter; 0: it
// states no time.
func (b *bucket) shutting(retryAfter time.Duration) shutting {
	window := time.Duration(0)
	for i := range b.told {
		window = max(window, b.told[i].per)
	}
	t := b.site.tracker
	return shutting{retryAfter: retryAfter, window: window, maxHold: t.maxHold(), spread: b.spread(), sent: b.flight.sent, random: t.random()}
}

// learn takes over what the answer says of the server's limits. It reports
// whether one of them is used up, which explains a refusal.
func (b *bucket) learn(n uint64, f throttle.Feedback, now time.Time) (explained bool) {
	if b.est != nil && b.est.window.declared && slices.ContainsFunc(f.RemoteLimits, countsRequests) {
		b.est.window = learnedWindow{}
	}
	var said [maxTold]bool
	for i := range b.told {
		if f.Outcome == throttle.Accepted {
			b.told[i].early.accepted(&b.told[i], n, now)
			b.told[i].accepted()
		}
	}
	for _, w := range f.RemoteLimits {
		if !countsRequests(w) {
			continue
		}
		if i := b.find(w); i >= 0 {
			said[i] = true
			if f.Outcome == throttle.Throttled {
				b.told[i].slots.refuted()
				if n > b.told[i].seen {
					b.told[i].counted.rejected(b.told[i].remaining-b.flight.open, b.told[i].limit)
				}
			}
			b.told[i].probed(w, n, f.Outcome)
			b.told[i].update(w, n, now, &b.flight)
			b.told[i].counted.on = b.told[i].counted.on && f.Outcome != throttle.Accepted
		}
	}
	for i := len(b.told) - 1; i >= 0; i-- {
		if !said[i] && f.Outcome != throttle.Failed && b.told[i].spend(n, f.Outcome == throttle.Accepted && b.site.tracker.Mode == Full, now, &b.flight) {
			b.site.budget.give(bytesOf(b.told[i : i+1]))
			b.told = append(b.told[:i], b.told[i+1:]...)
		}
	}
	return explains(f.RemoteLimits) || b.hearUnits(f.RemoteLimits, now)
}

// explains reports whether one of windows is used up.
func explains(windows []throttle.RemoteLimit) bool {
	return slices.ContainsFunc(windows, func(w throttle.RemoteLimit) bool { return countsRequests(w) && w.Remaining <= 0 })
}

// find returns the index of the limit that w speaks of, which may be new; -1 if
// there is no room for it.
func (b *bucket) find(w throttle.RemoteLimit) int {
	for i := range b.told {
		if b.told[i].name == w.Name && b.told[i].per == w.Per {
			return i
		}
	}
	if b.dropped {
		return -1
	}
	var ok bool
	if b.told, ok = b.site.addTold(b.told, told{name: w.Name, per: w.Per, remaining: w.Limit, slots: slotsOf(w)}); !ok {
		return -1
	}
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
func (b *bucket) hear(windows []throttle.RemoteLimit, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.record(b.view())
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
func (b *bucket) hasTold(windows []throttle.RemoteLimit, now time.Time) bool {
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
func (b *bucket) elsewhere(windows []throttle.RemoteLimit) bool {
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
	return b.gate.ajar || b.gate.until.After(now) || b.est != nil && b.est.loop.on()
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
	return b.flight.open == 0 && len(b.told)+len(b.meters) == 0 && !b.gate.ajar && b.est == nil
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
