package rules

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A keyLimiter is the limiter of one key. It follows its gate when that allows more or
// less than before: not when it happens, for that would mean to visit all keys, but
// with the next claim of the key, and then as of the instants at which it happened.
//
//	limit   100 ───┐           ┌─── 100
//	               └─── 10 ────┘
//	key     ──●────────────────────●──▶ time
//	       claim                 claim: first the two changes, each as of its instant
//
// Invariant: the units of the key flow as if each change had been made when it was
// due; what is taken stays taken.
//
// The odd case is a key that missed more changes than a gate remembers: it makes
// the last ones only.
type keyLimiter struct {
	owner    *activeLimit
	clock    clockOverride
	inner    throttle.Limiter // never another one
	limiters [2]throttle.Limiter
	mu       sync.Mutex
	version  atomic.Uint64 // of the phase that inner is in
}

// newKeyLimiter returns the limiter of a key of g, in the phase that g is in.
func newKeyLimiter(owner *activeLimit) throttle.Limiter {
	p := owner.version()
	c := &keyLimiter{owner: owner, clock: clockOverride{base: owner.clock}}
	c.version.Store(p.number)
	spec, hard := p.limit.initialSpecs(p)
	c.limiters[0] = newLimiter(spec, &c.clock)
	if hard == nil {
		c.inner = c.limiters[0]
		return c
	}
	c.limiters[1] = newLimiter(hard, &c.clock)
	soft := &throttle.SoftLimit{Soft: c.limiters[0], Hard: c.limiters[1]}
	c.inner = soft
	return &softKeyLimiter{c, soft}
}

// initialSpecs returns what p allows or, if that is nothing, what the first phase does
// that allows something.
func (l *Limit) initialSpecs(p *version) (spec, hard Spec) {
	if p.spec != nil {
		return p.spec, p.hard
	}
	for _, s := range l.allSpecs() {
		if s[0] != nil {
			return s[0], s[1]
		}
	}
	return nil, nil
}

// Reserve implements throttle.Limiter.
func (c *keyLimiter) Reserve(ctx context.Context, claim throttle.Claim) (throttle.Decision, error) {
	if p := c.owner.version(); c.version.Load() != p.number {
		c.catchUp(claim.Now)
	}
	return c.inner.Reserve(ctx, claim)
}

// catchUp makes the changes that c has missed.
func (c *keyLimiter) catchUp(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.IsZero() {
		now = c.clock.base.Now()
	}
	for _, p := range *c.owner.versions.Load() {
		if p.number <= c.version.Load() {
			continue
		}
		c.clock.set(now.Add(p.from.Sub(now))) // keeps the monotonic reading
		c.resize(p)
		c.clock.set(time.Time{})
		c.version.Store(p.number)
	}
}

// resize cannot fail: a gate has only phases whose specs are valid and resizable, see
// TestResize_matchesResizable.
func (c *keyLimiter) resize(p *version) {
	for i, s := range [...]Spec{p.spec, p.hard} {
		if c.limiters[i] != nil && s != nil {
			_ = resize(c.limiters[i], s)
		}
	}
}

// Cancel implements throttle.Limiter.
func (c *keyLimiter) Cancel(ctx context.Context, claim throttle.Claim, d throttle.Decision) {
	c.inner.Cancel(ctx, claim, d)
}

// Observe implements throttle.Observer.
func (c *keyLimiter) Observe(ctx context.Context, claim throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	throttle.Observe(ctx, c.inner, claim, d, f)
}

// Local implements throttle.NonBlocking.
func (*keyLimiter) NonBlocking() bool { return true }

// A softKeyLimiter has two limits, which a dry run of one claim does not tell all about.
type softKeyLimiter struct {
	*keyLimiter
	soft *throttle.SoftLimit
}

// Idle implements throttle.Evictable.
func (c *softKeyLimiter) Evictable(now time.Time) bool { return c.soft.Evictable(now) }

// A clockOverride is a clock that can be made to show another time for a moment, so that a
// limiter which reads the clock to change its limit does so as of that time.
type clockOverride struct {
	base  throttle.Clock
	fixed atomic.Pointer[time.Time]
}

// set makes h show t; zero: what the clock shows.
func (h *clockOverride) set(t time.Time) {
	if t.IsZero() {
		h.fixed.Store(nil)
		return
	}
	h.fixed.Store(&t)
}

// Now implements throttle.Clock.
func (h *clockOverride) Now() time.Time {
	if t := h.fixed.Load(); t != nil {
		return *t
	}
	return h.base.Now()
}

// After implements throttle.Clock.
func (h *clockOverride) After(d time.Duration) <-chan time.Time { return h.base.After(d) }
