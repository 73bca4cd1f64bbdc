package rules

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A cell is the limiter of one key. It follows its gate when that allows more or
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
type cell struct {
	gate   *gate
	hand   hand
	inner  throttle.Limiter // never another one
	sized  [2]throttle.Limiter
	mu     sync.Mutex
	number atomic.Uint64 // of the phase that inner is in
}

// newCell returns the limiter of a key of g, in the phase that g is in.
func newCell(g *gate) throttle.Limiter {
	p := g.phase()
	c := &cell{gate: g, hand: hand{clock: g.clock}}
	c.number.Store(p.number)
	spec, hard := p.limit.opening(p)
	c.sized[0] = newLimiter(spec, &c.hand)
	if hard == nil {
		c.inner = c.sized[0]
		return c
	}
	c.sized[1] = newLimiter(hard, &c.hand)
	soft := &throttle.Soft{Limit: c.sized[0], Hard: c.sized[1]}
	c.inner = soft
	return &softCell{c, soft}
}

// opening returns what p allows or, if that is nothing, what the first phase does
// that allows something.
func (l *Limit) opening(p *phase) (spec, hard Spec) {
	if p.spec != nil {
		return p.spec, p.hard
	}
	for _, s := range l.phases() {
		if s[0] != nil {
			return s[0], s[1]
		}
	}
	return nil, nil
}

// Reserve implements throttle.Limiter.
func (c *cell) Reserve(ctx context.Context, claim throttle.Claim) (throttle.Decision, error) {
	if p := c.gate.phase(); c.number.Load() != p.number {
		c.follow(claim.Now)
	}
	return c.inner.Reserve(ctx, claim)
}

// follow makes the changes that c has missed.
func (c *cell) follow(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.IsZero() {
		now = c.hand.clock.Now()
	}
	for _, p := range *c.gate.phases.Load() {
		if p.number <= c.number.Load() {
			continue
		}
		c.hand.set(now.Add(p.from.Sub(now))) // keeps the monotonic reading
		c.resize(p)
		c.hand.set(time.Time{})
		c.number.Store(p.number)
	}
}

// resize cannot fail: a gate has only phases whose specs are valid and resizable, see
// TestResize_doesWhatResizableSays.
func (c *cell) resize(p *phase) {
	for i, s := range [...]Spec{p.spec, p.hard} {
		if c.sized[i] != nil && s != nil {
			_ = resize(c.sized[i], s)
		}
	}
}

// Cancel implements throttle.Limiter.
func (c *cell) Cancel(ctx context.Context, claim throttle.Claim, d throttle.Decision) {
	c.inner.Cancel(ctx, claim, d)
}

// Observe implements throttle.Observer.
func (c *cell) Observe(ctx context.Context, claim throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	throttle.Observe(ctx, c.inner, claim, d, f)
}

// Local implements throttle.Local.
func (*cell) Local() bool { return true }

// A softCell has two limits, which a dry run of one claim does not tell all about.
type softCell struct {
	*cell
	soft *throttle.Soft
}

// Idle implements throttle.Idler.
func (c *softCell) Idle(now time.Time) bool { return c.soft.Idle(now) }

// A hand is a clock that can be made to show another time for a moment, so that a
// limiter which reads the clock to change its limit does so as of that time.
type hand struct {
	clock throttle.Clock
	at    atomic.Pointer[time.Time]
}

// set makes h show t; zero: what the clock shows.
func (h *hand) set(t time.Time) {
	if t.IsZero() {
		h.at.Store(nil)
		return
	}
	h.at.Store(&t)
}

// Now implements throttle.Clock.
func (h *hand) Now() time.Time {
	if t := h.at.Load(); t != nil {
		return *t
	}
	return h.clock.Now()
}

// After implements throttle.Clock.
func (h *hand) After(d time.Duration) <-chan time.Time { return h.clock.After(d) }
