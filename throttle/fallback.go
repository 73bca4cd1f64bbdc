package throttle

import (
	"context"
	"errors"
)

// FallbackConfig configures NewFallback.
type FallbackConfig struct {
	// Primary decides unless it returns an error. It must be set.
	Primary Limiter

	// Secondary decides if Primary returns an error. It must be set.
	Secondary Limiter

	// OnError is called with each error of Primary before Secondary is asked, unless it is nil.
	OnError func(error)
}

// NewFallback returns a limiter that asks Primary, and asks Secondary if Primary returns an
// error. Decisions of Secondary are Degraded. With AllowAll as Secondary it fails open, with
// DenyAll it fails closed; a local limiter enforces an approximate limit while a shared store
// is unavailable. NewFallback panics if Primary or Secondary is nil.
//
// Errors that are not caused by Primary are returned: ErrCost, and the cause of a ctx that
// is done. Primary must therefore return an error for an unresponsive store before the
// contexts of its callers end. If both limiters fail, the error joins both errors.
func NewFallback(f FallbackConfig) Limiter {
	if f.Primary == nil || f.Secondary == nil {
		panic("throttle: NewFallback: Primary or Secondary is nil: set both")
	}
	return &fallback{FallbackConfig: f}
}

type fallback struct {
	FallbackConfig
	subGrants SubGrants
}

func (f *fallback) SetClock(c Clock) { setClock(c, f.Primary, f.Secondary) }

func (f *fallback) Reserve(ctx context.Context, c Claim) (Decision, error) {
	d, err := f.Primary.Reserve(ctx, c)
	switch {
	case err == nil:
		if d.Fresh {
			s, err := f.Secondary.Reserve(ctx, c) // a dry run
			d.Fresh = err == nil && s.Fresh
		}
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
		d = f.subGrants.Wrap(d, []Decision{d})
	}
	d.Degraded, d.Fresh = true, false
	return d, nil
}

func (f *fallback) Report(ctx context.Context, c Claim, d Decision, fb Feedback) {
	if !f.subGrants.Owns(d) {
		f.Primary.Report(ctx, c, d, fb)
		return
	}
	f.subGrants.Unwrap(d, fb.State, func(parts []Decision) { f.Secondary.Report(ctx, c, parts[0], fb) })
}

// Traits implements Limiter. A limiter that does not book ahead grants only what may start now.
func (f *fallback) Traits() Traits {
	p, s := f.Primary.Traits(), f.Secondary.Traits()
	t := mergeTraits(p, s)
	t.BooksAhead = p.BooksAhead || s.BooksAhead
	return t
}
