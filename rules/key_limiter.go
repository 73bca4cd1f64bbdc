package rules

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A keyLimiter is the limiter of one key. It adopts changes of its activeLimit with the next claim
// of the key, because visiting all keys at each change would be too expensive. Each change is
// applied as of the time at which it took effect.
//
//	limit   100 ───┐           ┌─── 100
//	               └─── 10 ────┘
//	key     ──●────────────────────●──▶ time
//	       claim                 claim: applies the two changes first, each as of its time
//
// Invariant: the units of the key refill as if each change had been applied when it took effect.
// Units that were taken stay taken.
//
// Limitations: a key that has missed more changes than maxVersions applies only the last ones.
type keyLimiter struct {
	owner    *activeLimit
	clock    clockOverride
	inner    throttle.Limiter // never replaced
	limiters [2]throttle.Limiter
	mu       sync.Mutex
	version  atomic.Uint64 // number of the version that inner has adopted
}

// newKeyLimiter returns the limiter of a key of owner, in the current version of owner.
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
	c.inner = throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: c.limiters[0], Hard: c.limiters[1]})
	return c
}

// initialSpecs returns the specs of p or, if p grants nothing, those of the first period of l that
// grants something.
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

// catchUp applies the versions that c has missed.
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
		c.clock.set(now.Add(p.from.Sub(now))) // keeps the monotonic clock reading
		c.resize(p)
		c.clock.set(time.Time{})
		c.version.Store(p.number)
	}
}

// resize sets the limits of c to those of p. It ignores errors, which cannot occur: all versions
// of an activeLimit have valid specs for which resizable is true, see TestResize_matchesResizable.
func (c *keyLimiter) resize(p *version) {
	for i, s := range [...]Spec{p.spec, p.hard} {
		if c.limiters[i] != nil && s != nil {
			_ = resize(c.limiters[i], s)
		}
	}
}

// Report implements throttle.Limiter.
func (c *keyLimiter) Report(ctx context.Context, claim throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	c.inner.Report(ctx, claim, d, f)
}

// Traits implements throttle.Limiter.
func (c *keyLimiter) Traits() throttle.Traits { return c.inner.Traits() }

// A clockOverride is a clock that can be set to a fixed time temporarily, so that a limiter that
// reads the clock to change its limit does so as of that time.
type clockOverride struct {
	base  throttle.Clock
	fixed atomic.Pointer[time.Time]
}

// set makes h return t. The zero time removes the override.
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
