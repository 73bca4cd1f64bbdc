package throttle

import (
	"context"
	"math"
	"strconv"

	"github.com/heed-go/heed/internal/ticks"
)

// AllOf returns a Limiter that grants a claim only if each of ls grants it. A rejected
// claim takes nothing from any of them. AllOf without limiters grants every claim. It
// panics if one of ls is nil.
//
// A grant returns the Decision of the limit with the fewest units remaining, a rejection
// that of the limit with the longest Wait, so that a caller sleeps only once.
//
// The limiters are asked in order, so local limiters should come first and a remote one
// last. If Claim.Now is zero, the reading of the first limiter that reads a clock is used
// for all later ones. While a claim is being decided, concurrent claims may see the units
// that it has taken so far: AllOf may reject a claim that would just have fit, and never
// grants one that does not fit. After a rejection the earlier limiters get their units back,
// but readings older than that of the claim count as that one from then on.
//
// AllOf clears Claim.Ahead. Report does nothing for a claim that has already ended.
func AllOf(ls ...Limiter) Limiter {
	a := &allOf{}
	for i, l := range ls {
		switch inner, ok := l.(*allOf); {
		case l == nil:
			panic("throttle: AllOf: limiter " + strconv.Itoa(i) + " is nil: leave it out, or use AllowAll")
		case ok:
			a.limiters = append(a.limiters, inner.limiters...)
		default:
			a.limiters = append(a.limiters, l)
		}
	}
	return a
}

type allOf struct {
	limiters  []Limiter
	subGrants SubGrants
}

func (a *allOf) SetClock(c Clock) { setClock(c, a.limiters...) }

func (a *allOf) Reserve(ctx context.Context, c Claim) (Decision, error) {
	if _, err := c.Units(); err != nil {
		return Decision{}, err
	}
	c.Ahead = 0
	all, t, sw := Decision{OK: true, Fresh: c.DryRun, At: c.Now}, a.subGrants.get(len(a.limiters)), startStopwatch(c)
	i := 0
	defer func() { // also if a limiter panics
		if i == len(a.limiters) {
			return
		}
		defer a.subGrants.pool.Put(t)
		if !c.DryRun {
			// Not as of the time of the grant: while a slow limiter was asked, the limits restored
			// units by themselves. See TestAllOf_cancelAfterSlowRejectionStaysWithinLimit.
			reportAll(ctx, a.limiters, c, t.parts[:i], Feedback{Now: sw.Now(), State: Unused})
		}
	}()
	for ; i < len(a.limiters); i++ {
		d := &t.parts[i]
		var err error
		if *d, err = a.limiters[i].Reserve(ctx, c); err != nil {
			return Decision{}, err
		}
		if !d.OK {
			d.Degraded, d.Fresh = d.Degraded || all.Degraded, d.Fresh && all.Fresh
			d.rejectedBy = uint8(min(i, math.MaxUint8))
			return a.longestRejection(ctx, c, *d, i+1), nil
		}
		if mergeGrant(&all, d, i == 0); c.Now.IsZero() {
			c.Now = d.At
		}
	}
	if all.subGrant = nil; c.DryRun {
		a.subGrants.pool.Put(t)
		return all, nil
	}
	return t.attach(all), nil
}

// reportAll reports f to each limiter of ls, even if one of them panics.
func reportAll(ctx context.Context, ls []Limiter, c Claim, parts []Decision, f Feedback) {
	if len(parts) == 0 {
		return
	}
	defer reportAll(ctx, ls[1:], c, parts[1:], f)
	ls[0].Report(ctx, c, parts[0], f)
}

// longestRejection returns d, or a rejection by one of the limiters from index i on if its
// Wait ends later.
func (a *allOf) longestRejection(ctx context.Context, c Claim, d Decision, i int) Decision {
	c.DryRun = true
	fresh := d.Fresh
	for ; i < len(a.limiters); i++ {
		p, err := a.limiters[i].Reserve(ctx, c)
		fresh = fresh && err == nil && p.Fresh
		if err == nil && !p.OK && waitsLonger(p, d) {
			p.Degraded = p.Degraded || d.Degraded
			p.rejectedBy = uint8(min(i, math.MaxUint8))
			d = p
		}
	}
	d.Fresh, d.subGrant = fresh, nil
	return d
}

func (a *allOf) Report(ctx context.Context, c Claim, d Decision, f Feedback) {
	a.subGrants.Unwrap(d, f.State, func(parts []Decision) { reportAll(ctx, a.limiters, c, parts, f) })
}

func (a *allOf) Traits() Traits {
	all := AllowAll.Traits()
	for _, l := range a.limiters {
		all = mergeTraits(all, l.Traits())
	}
	all.Parts = a.limiters
	return all
}

// mergeTraits returns the Traits of a limiter that asks two others, except BooksAhead and Parts.
func mergeTraits(t, u Traits) Traits {
	return Traits{
		NonBlocking:    t.NonBlocking && u.NonBlocking,
		EndsAtResponse: t.EndsAtResponse && u.EndsAtResponse,
		CountsRejected: t.CountsRejected || u.CountsRejected,
	}
}

// mergeGrant merges d, the grant of one more limiter, into all, the decision of those before it.
func mergeGrant(all, d *Decision, first bool) {
	fresh, at, degraded, over, wait := all.Fresh && d.Fresh, all.At, all.Degraded || d.Degraded, all.OverLimit || d.OverLimit, max(all.Wait, d.Wait)
	if first || at.IsZero() {
		at = d.At
	}
	if first || !d.Shadow && d.Limit > 0 && (all.Shadow || all.Limit == 0 || d.Remaining < all.Remaining) {
		*all = *d
	}
	all.Fresh, all.At, all.Degraded, all.OverLimit, all.Wait = fresh, at, degraded, over, wait
}

// waitsLonger reports whether the Wait of p, a rejection, ends later than that of d. An unknown
// Wait counts as the shortest.
func waitsLonger(p, d Decision) bool {
	switch {
	case p.Wait == 0 || d.Wait == Forever:
		return false
	case p.Wait == Forever || d.Wait == 0:
		return true
	}
	return p.At.Add(p.Wait).After(d.At.Add(d.Wait))
}

// startStopwatch returns a Stopwatch for c. A dry run takes no units, and needs none.
func startStopwatch(c Claim) ticks.Stopwatch {
	if c.DryRun {
		return ticks.Stopwatch{}
	}
	return ticks.StartStopwatch(c.Now)
}
