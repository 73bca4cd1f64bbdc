package throttle

import (
	"context"
	"errors"
	"time"
)

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

	subGrants SubGrants
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
	d, secondaryErr := f.Secondary.Reserve(ctx, c)
	if secondaryErr != nil {
		return Decision{}, errors.Join(err, secondaryErr)
	}
	if d.OK && !c.DryRun {
		t := f.subGrants.get(1)
		t.parts[0] = d
		d = t.attach(d)
	}
	d.Degraded = true
	return d, nil
}

// Cancel implements Limiter: the limiter that granted gets its units back.
func (f *Fallback) Cancel(ctx context.Context, c Claim, d Decision) {
	if !f.subGrants.Owns(d) {
		f.Primary.Cancel(ctx, c, d)
		return
	}
	if t := f.subGrants.lookup(d, false); t != nil {
		defer t.release()
		f.Secondary.Cancel(ctx, c, t.parts[0])
	}
}

// Observe implements Observer: the limiter that granted hears of it.
func (f *Fallback) Observe(ctx context.Context, c Claim, d Decision, fb Feedback) {
	if !f.subGrants.Owns(d) {
		Observe(ctx, f.Primary, c, d, fb)
		return
	}
	if t := f.subGrants.lookup(d, fb.Partial); t != nil {
		defer t.release()
		Observe(ctx, f.Secondary, c, t.parts[0], fb)
	}
}

// Local implements Local.
func (f *Fallback) NonBlocking() bool { return IsNonBlocking(f.Primary) && IsNonBlocking(f.Secondary) }

// HoldsUntilEnd implements Holder.
func (f *Fallback) HoldsUntilEnd() bool {
	return HoldsUntilEnd(f.Primary) || HoldsUntilEnd(f.Secondary)
}

// Idle implements Idler.
func (f *Fallback) Evictable(now time.Time) bool { return allEvictable(now, f.Primary, f.Secondary) }

// CountsRefusals implements RefusalCounter.
func (f *Fallback) CountsRefusals() bool {
	return CountsRefusals(f.Primary) || CountsRefusals(f.Secondary)
}
