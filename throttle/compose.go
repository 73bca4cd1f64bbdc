package throttle

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"
)

// AllOf returns a Limiter that grants a claim only if each of ls grants it now.
// What it refuses has taken nothing from any of them. AllOf of none grants
// everything. It panics if one of ls is nil.
//
// A grant shows the limit with the fewest units left: that many can still be had
// from all of them. A refusal shows the limit that asks for the longest wait, so
// that a caller sleeps once rather than once per limit; where nobody knows the
// wait it is 0.
//
// Limits are asked in order, so put the cheap ones first and a remote one last.
// The first one that reads a clock reads it for all. While a claim is tried,
// others may see the units that it holds for a moment: AllOf may refuse a claim
// that would just have fit, and never grants one that does not. A limit that granted
// what the next one refused keeps no units of it, but the reading of the clock: older
// readings count as that one from then on.
//
// AllOf does not book ahead, whatever Claim.MaxWait says: a unit booked at one
// limit would be used when the others have changed.
//
// A claim that has ended stays as it ended: Cancel and Observe of the same
// Decision do nothing from then on.
func AllOf(ls ...Limiter) Limiter {
	for i, l := range ls {
		if l == nil {
			panic("throttle: AllOf: limiter " + strconv.Itoa(i) + " is nil: leave it out, or use Unlimited")
		}
	}
	a := &allOf{}
	for _, l := range ls {
		if inner, ok := l.(*allOf); ok {
			a.ls = append(a.ls, inner.ls...)
		} else {
			a.ls = append(a.ls, l)
		}
	}
	return a
}

type allOf struct {
	ls     []Limiter
	trails trails
}

// slow is how long trying a claim may take before it counts as time that has
// passed: more than any local limiter needs, less than a remote one.
const slow = time.Millisecond

// Reserve implements Limiter.
func (a *allOf) Reserve(ctx context.Context, c Claim) (Decision, error) {
	if _, err := c.Units(); err != nil {
		return Decision{}, err
	}
	c.MaxWait = 0
	all, t, watch := Decision{OK: true, At: c.Now}, a.trails.take(len(a.ls)), startWatch(c)
	i := 0
	defer func() { // also if a limiter panics
		if i == len(a.ls) {
			return
		}
		defer a.trails.idle.Put(t)
		if !c.DryRun {
			a.rollback(ctx, c, t.parts[:i], watch)
		}
	}()
	for ; i < len(a.ls); i++ {
		d, err := a.ls[i].Reserve(ctx, c)
		if err != nil {
			return Decision{}, err
		}
		if !d.OK {
			d.Degraded = d.Degraded || all.Degraded
			d.part = uint8(min(i, math.MaxUint8))
			return a.longest(ctx, c, d, i+1), nil
		}
		t.parts[i] = d
		if all = join(all, d, i == 0); c.Now.IsZero() {
			c.Now = d.At
		}
	}
	if all.trail = nil; c.DryRun {
		a.trails.idle.Put(t)
		return all, nil
	}
	return t.mark(all), nil
}

// rollback gives back what the first limiters granted, as of now.
//
// To give it back as of the moment it was taken looks right and lets in more than
// the limits: while a slow limiter was asked, units flowed back by themselves. See
// TestAllOf_slowRefusalGivesBackNoMoreThanIsDue.
func (a *allOf) rollback(ctx context.Context, c Claim, parts []Decision, w watch) {
	c.Now = w.now()
	cancelAll(ctx, a.ls, c, parts)
}

// cancelAll hands each of parts to its limiter of ls, even if one of them panics.
func cancelAll(ctx context.Context, ls []Limiter, c Claim, parts []Decision) {
	if len(parts) == 0 {
		return
	}
	defer cancelAll(ctx, ls[1:], c, parts[1:])
	ls[0].Cancel(ctx, c, parts[0])
}

// observeAll hands f to each limiter of ls, even if one of them panics.
func observeAll(ctx context.Context, ls []Limiter, c Claim, parts []Decision, f Feedback) {
	if len(parts) == 0 {
		return
	}
	defer observeAll(ctx, ls[1:], c, parts[1:], f)
	Observe(ctx, ls[0], c, parts[0], f)
}

// longest returns d, or the refusal of one of the limiters from the i-th on if
// that asks to wait longer.
func (a *allOf) longest(ctx context.Context, c Claim, d Decision, i int) Decision {
	c.DryRun = true
	for ; i < len(a.ls); i++ {
		if p, err := a.ls[i].Reserve(ctx, c); err == nil && !p.OK && opensLater(p, d) {
			p.Degraded = p.Degraded || d.Degraded
			p.part = uint8(min(i, math.MaxUint8))
			d = p
		}
	}
	d.trail = nil
	return d
}

// Cancel implements Limiter.
func (a *allOf) Cancel(ctx context.Context, c Claim, d Decision) {
	if t := a.trails.enter(d, false); t != nil {
		defer t.leave()
		cancelAll(ctx, a.ls, c, t.parts)
	}
}

// Observe implements Observer.
func (a *allOf) Observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	if t := a.trails.enter(d, f.More); t != nil {
		defer t.leave()
		observeAll(ctx, a.ls, c, t.parts, f)
	}
}

// Local implements Local.
func (a *allOf) Local() bool {
	return !slices.ContainsFunc(a.ls, func(l Limiter) bool { return !isLocal(l) })
}

// join returns the decision on a claim that all and then one more limiter granted.
func join(all, d Decision, first bool) Decision {
	at, degraded, over, wait := all.At, all.Degraded || d.Degraded, all.Over || d.Over, max(all.Wait, d.Wait)
	if first || at.IsZero() {
		at = d.At
	}
	if first || d.Limit > 0 && (all.Limit == 0 || d.Remaining < all.Remaining) {
		all = d
	}
	all.At, all.Degraded, all.Over, all.Wait = at, degraded, over, wait
	return all
}

// opensLater reports whether p, a refusal, asks to wait for longer than d does. A
// wait that is known is longer than one that is not.
func opensLater(p, d Decision) bool {
	switch {
	case p.Wait == 0 || d.Wait == Forever:
		return false
	case p.Wait == Forever || d.Wait == 0:
		return true
	}
	return p.At.Add(p.Wait).After(d.At.Add(d.Wait))
}

// A watch tells how the reading of a claim moves on while limiters are asked.
type watch struct {
	from  time.Time // the caller's reading; zero: each limiter reads its own clock
	began time.Duration
}

var processStart = time.Now() // time.Since of it costs half of time.Now

func startWatch(c Claim) watch {
	if c.Now.IsZero() || c.DryRun {
		return watch{}
	}
	return watch{c.Now, time.Since(processStart)}
}

// now returns the reading by now: the same while little time has passed, so that
// claims replayed from data stay exact.
func (w watch) now() time.Time {
	if w.from.IsZero() {
		return time.Time{}
	}
	if d := time.Since(processStart) - w.began; d > slow {
		return w.from.Add(d)
	}
	return w.from
}

// Fallback asks Primary, and Secondary when Primary cannot decide. Its decisions
// are Degraded then. With Unlimited as Secondary it fails open, with Blocked it
// fails closed, and a local limiter keeps a rough limit while a store that is
// shared with others is away.
//
// What is not Primary's fault stays an error: a negative cost, and a ctx that is
// done. Primary must therefore give up on a store that hangs before its callers
// lose patience.
//
// Both limiters must be set, and neither may change once the Fallback is in use. A
// Fallback must not be copied.
type Fallback struct {
	Primary, Secondary Limiter
	OnError            func(error) // told of each error of Primary that Secondary stood in for; nil: nobody

	trails trails
}

// Reserve implements Limiter. If both limiters fail, the error is that of both.
func (f *Fallback) Reserve(ctx context.Context, c Claim) (Decision, error) {
	d, err := f.Primary.Reserve(ctx, c)
	switch {
	case err == nil:
		return d, nil
	case errors.Is(err, ErrCost):
		return Decision{}, err
	case ctx.Err() != nil:
		return Decision{}, context.Cause(ctx)
	}
	if f.OnError != nil {
		f.OnError(err)
	}
	d, again := f.Secondary.Reserve(ctx, c)
	if again != nil {
		return Decision{}, errors.Join(err, again)
	}
	if d.OK && !c.DryRun {
		t := f.trails.take(1)
		t.parts[0] = d
		d = t.mark(d)
	}
	d.Degraded = true
	return d, nil
}

// Cancel implements Limiter: the limiter that granted gets its units back.
func (f *Fallback) Cancel(ctx context.Context, c Claim, d Decision) {
	if !f.trails.made(d) {
		f.Primary.Cancel(ctx, c, d)
		return
	}
	if t := f.trails.enter(d, false); t != nil {
		defer t.leave()
		f.Secondary.Cancel(ctx, c, t.parts[0])
	}
}

// Observe implements Observer: the limiter that granted hears of it.
func (f *Fallback) Observe(ctx context.Context, c Claim, d Decision, fb Feedback) {
	if !f.trails.made(d) {
		Observe(ctx, f.Primary, c, d, fb)
		return
	}
	if t := f.trails.enter(d, fb.More); t != nil {
		defer t.leave()
		Observe(ctx, f.Secondary, c, t.parts[0], fb)
	}
}

// Local implements Local.
func (f *Fallback) Local() bool { return isLocal(f.Primary) && isLocal(f.Secondary) }

// Unlimited grants everything. It reads no clock: its Decision.At is Claim.Now.
var Unlimited Limiter = fixed{Decision{OK: true, Policy: "unlimited"}}

// Blocked refuses everything, for ever. It reads no clock: its Decision.At is
// Claim.Now.
var Blocked Limiter = fixed{Decision{Wait: Forever, Policy: "blocked"}}

// fixed is a limiter that always decides the same.
type fixed struct{ d Decision }

// Reserve implements Limiter.
func (f fixed) Reserve(_ context.Context, c Claim) (Decision, error) {
	if _, err := c.Units(); err != nil {
		return Decision{}, err
	}
	d := f.d
	d.At = c.Now
	return d, nil
}

// Cancel implements Limiter: there is nothing to give back.
func (fixed) Cancel(context.Context, Claim, Decision) {}

// Local implements Local.
func (fixed) Local() bool { return true }
