package throttle

import (
	"context"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// AllOf returns a Limiter that grants a claim only if each of ls grants it. A rejected
// claim takes nothing from any of them. AllOf without limiters grants every claim. It
// panics if one of ls is nil.
//
// A grant returns the Decision of the limit with the fewest units remaining. A rejection
// returns the Decision of the limit with the longest Wait, so that a caller sleeps once
// and not once per limit; if no limit states a Wait, it is 0.
//
// The limiters are asked in order, so local limiters should come first and a remote one
// last. If Claim.Now is zero, the reading of the first limiter that reads a clock is used
// for all later ones. While a claim is being decided, concurrent claims may see the units
// that it has taken so far: AllOf may reject a claim that would just have fit, and never
// grants one that does not fit. If a later limiter rejects the claim, the earlier limiters
// get their units back, but keep its reading of the clock: older readings count as that
// one from then on.
//
// AllOf is not a Booker, because the other limits may have changed by the time at which a
// booked unit may be used.
//
// Cancel and Observe do nothing for a claim that has already ended.
func AllOf(ls ...Limiter) Limiter {
	for i, l := range ls {
		if l == nil {
			panic("throttle: AllOf: limiter " + strconv.Itoa(i) + " is nil: leave it out, or use AllowAll")
		}
	}
	a := &allOf{}
	for _, l := range ls {
		if inner, ok := l.(*allOf); ok {
			a.limiters = append(a.limiters, inner.limiters...)
		} else {
			a.limiters = append(a.limiters, l)
		}
	}
	return a
}

// Parts returns the limiters of an AllOf, and nil for any other limiter. The slice must
// not be modified.
func Parts(l Limiter) []Limiter {
	if a, ok := l.(*allOf); ok {
		return a.limiters
	}
	return nil
}

type allOf struct {
	limiters  []Limiter
	subGrants SubGrants
}

// SetClock sets the clock of the limiters; see WithClock.
func (a *allOf) SetClock(c Clock) { setClock(c, a.limiters...) }

// Reserve implements Limiter.
func (a *allOf) Reserve(ctx context.Context, c Claim) (Decision, error) {
	if _, err := c.Units(); err != nil {
		return Decision{}, err
	}
	all, t, sw := Decision{OK: true, At: c.Now}, a.subGrants.get(len(a.limiters)), startStopwatch(c)
	i := 0
	defer func() { // also if a limiter panics
		if i == len(a.limiters) {
			return
		}
		defer a.subGrants.pool.Put(t)
		if !c.DryRun {
			a.rollback(ctx, c, t.parts[:i], sw)
		}
	}()
	for ; i < len(a.limiters); i++ {
		d, err := a.limiters[i].Reserve(ctx, c)
		if err != nil {
			return Decision{}, err
		}
		if !d.OK {
			d.Degraded = d.Degraded || all.Degraded
			d.refusedBy = uint8(min(i, math.MaxUint8))
			return a.longestRefusal(ctx, c, d, i+1), nil
		}
		t.parts[i] = d
		if all = mergeGrants(all, d, i == 0); c.Now.IsZero() {
			c.Now = d.At
		}
	}
	if all.subGrant = nil; c.DryRun {
		a.subGrants.pool.Put(t)
		return all, nil
	}
	return t.attach(all), nil
}

// rollback returns the units that the first limiters granted, as of the current time.
//
// Returning them as of the time of the grant would exceed the limits: while a slow limiter
// was asked, the limits restored units by themselves. See
// TestAllOf_cancelAfterSlowRefusalStaysWithinLimit.
func (a *allOf) rollback(ctx context.Context, c Claim, parts []Decision, w ticks.Stopwatch) {
	c.Now = w.Now()
	cancelAll(ctx, a.limiters, c, parts)
}

// cancelAll passes each of parts to Cancel of its limiter in ls, even if one of them
// panics.
func cancelAll(ctx context.Context, ls []Limiter, c Claim, parts []Decision) {
	if len(parts) == 0 {
		return
	}
	defer cancelAll(ctx, ls[1:], c, parts[1:])
	ls[0].Cancel(ctx, c, parts[0])
}

// observeAll passes f to each limiter of ls, even if one of them panics.
func observeAll(ctx context.Context, ls []Limiter, c Claim, parts []Decision, f Feedback) {
	if len(parts) == 0 {
		return
	}
	defer observeAll(ctx, ls[1:], c, parts[1:], f)
	Observe(ctx, ls[0], c, parts[0], f)
}

// longestRefusal returns d, or a rejection by one of the limiters from index i on if its
// Wait ends later.
func (a *allOf) longestRefusal(ctx context.Context, c Claim, d Decision, i int) Decision {
	c.DryRun = true
	for ; i < len(a.limiters); i++ {
		if p, err := a.limiters[i].Reserve(ctx, c); err == nil && !p.OK && waitsLonger(p, d) {
			p.Degraded = p.Degraded || d.Degraded
			p.refusedBy = uint8(min(i, math.MaxUint8))
			d = p
		}
	}
	d.subGrant = nil
	return d
}

// Cancel implements Limiter.
func (a *allOf) Cancel(ctx context.Context, c Claim, d Decision) {
	if t := a.subGrants.lookup(d, false); t != nil {
		defer t.release()
		cancelAll(ctx, a.limiters, c, t.parts)
	}
}

// Observe implements Observer.
func (a *allOf) Observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	if t := a.subGrants.lookup(d, f.Partial); t != nil {
		defer t.release()
		observeAll(ctx, a.limiters, c, t.parts, f)
	}
}

// NonBlocking is the method that IsNonBlocking calls.
func (a *allOf) NonBlocking() bool {
	return !slices.ContainsFunc(a.limiters, func(l Limiter) bool { return !IsNonBlocking(l) })
}

// mergeGrants returns the decision on a claim that was granted with decision all and then
// by one more limiter with decision d.
func mergeGrants(all, d Decision, first bool) Decision {
	at, degraded, over, wait := all.At, all.Degraded || d.Degraded, all.OverLimit || d.OverLimit, max(all.Wait, d.Wait)
	if first || at.IsZero() {
		at = d.At
	}
	if first || !d.Shadow && d.Limit > 0 && (all.Shadow || all.Limit == 0 || d.Remaining < all.Remaining) {
		all = d
	}
	all.At, all.Degraded, all.OverLimit, all.Wait = at, degraded, over, wait
	return all
}

// waitsLonger reports whether the Wait of p, a rejection, ends later than that of d. A
// known Wait counts as longer than an unknown one.
func waitsLonger(p, d Decision) bool {
	switch {
	case p.Wait == 0 || d.Wait == Forever:
		return false
	case p.Wait == Forever || d.Wait == 0:
		return true
	}
	return p.At.Add(p.Wait).After(d.At.Add(d.Wait))
}

// startStopwatch returns a Stopwatch for c. A dry run does not need one, because it takes
// no units that may have to be returned.
func startStopwatch(c Claim) ticks.Stopwatch {
	if c.DryRun {
		return ticks.Stopwatch{}
	}
	return ticks.StartStopwatch(c.Now)
}

// HoldsUntilEnd implements Holder.
func (a *allOf) HoldsUntilEnd() bool {
	for _, l := range a.limiters {
		if HoldsUntilEnd(l) {
			return true
		}
	}
	return false
}

// Evictable is the method that IsEvictable calls.
func (a *allOf) Evictable(now time.Time) bool { return allEvictable(now, a.limiters...) }

// CountsRefusals is the method that CountsRefusals calls.
func (a *allOf) CountsRefusals() bool { return slices.ContainsFunc(a.limiters, CountsRefusals) }
