package throttle

import (
	"context"
	"errors"
	"time"
)

// Fallback asks Primary, and asks Secondary if Primary returns an error. Decisions of
// Secondary are Degraded. With AllowAll as Secondary it fails open, with DenyAll it fails
// closed; a local limiter as Secondary enforces an approximate limit while a shared store
// is unavailable.
//
// Errors that are not caused by Primary are returned: ErrCost, and the cause of a ctx that
// is done. Primary must therefore return an error for an unresponsive store before the
// contexts of its callers end.
//
// No field may change after the first use. A Fallback
// must not be copied.
type Fallback struct {
	// Primary decides unless it returns an error. It must be set.
	Primary Limiter

	// Secondary decides if Primary returns an error. It must be set.
	Secondary Limiter

	// OnError is called with each error of Primary before Secondary is asked. Nil means no
	// call.
	OnError func(error)

	subGrants SubGrants
}

// SetClock sets the clock of both limiters; see WithClock.
func (f *Fallback) SetClock(c Clock) { setClock(c, f.Primary, f.Secondary) }

// Reserve implements Limiter. If both limiters fail, the error joins both errors.
func (f *Fallback) Reserve(ctx context.Context, c Claim) (Decision, error) {
	return f.ReserveAhead(ctx, c, 0)
}

// ReserveAhead implements Booker. A limiter that is not a Booker grants only what may
// start now.
func (f *Fallback) ReserveAhead(ctx context.Context, c Claim, maxWait time.Duration) (Decision, error) {
	if f.Primary == nil || f.Secondary == nil {
		panic("throttle: Fallback: Primary or Secondary is nil: set both")
	}
	d, err := ReserveAhead(ctx, f.Primary, c, maxWait)
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
	d, secondaryErr := ReserveAhead(ctx, f.Secondary, c, maxWait)
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

// Cancel implements Limiter: it cancels the claim at the limiter that granted it.
func (f *Fallback) Cancel(ctx context.Context, c Claim, d Decision) {
	if !f.subGrants.Owns(d) {
		f.Primary.Cancel(ctx, c, d)
	} else if t := f.subGrants.lookup(d, false); t != nil {
		defer t.release()
		f.Secondary.Cancel(ctx, c, t.parts[0])
	}
}

// Observe implements Observer: it reports to the limiter that granted the claim.
func (f *Fallback) Observe(ctx context.Context, c Claim, d Decision, fb Feedback) {
	if !f.subGrants.Owns(d) {
		Observe(ctx, f.Primary, c, d, fb)
	} else if t := f.subGrants.lookup(d, fb.Partial); t != nil {
		defer t.release()
		Observe(ctx, f.Secondary, c, t.parts[0], fb)
	}
}

// NonBlocking is the method that IsNonBlocking calls.
func (f *Fallback) NonBlocking() bool { return IsNonBlocking(f.Primary) && IsNonBlocking(f.Secondary) }

// HoldsUntilEnd implements Holder.
func (f *Fallback) HoldsUntilEnd() bool {
	return HoldsUntilEnd(f.Primary) || HoldsUntilEnd(f.Secondary)
}

// Evictable is the method that IsEvictable calls.
func (f *Fallback) Evictable(now time.Time) bool { return allEvictable(now, f.Primary, f.Secondary) }

// CountsRefusals is the method that CountsRefusals calls.
func (f *Fallback) CountsRefusals() bool {
	return CountsRefusals(f.Primary) || CountsRefusals(f.Secondary)
}
