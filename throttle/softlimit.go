package throttle

import (
	"cmp"
	"context"

	"github.com/heed-go/heed/internal/ticks"
)

// SoftLimitConfig configures NewSoftLimit.
type SoftLimitConfig struct {
	// Soft is the limit above which grants are OverLimit. It must be set.
	Soft Limiter

	// Hard is the limit that is enforced. It should allow more than Soft. Nil means none.
	Hard Limiter

	// CanBorrow reports whether c may be granted although Soft rejected it with d, also if c
	// is larger than Soft can ever grant. It is also called for dry runs, and by several
	// goroutines at the same time. It must not block if the limiters do not; see Traits. Nil
	// means that every claim may.
	CanBorrow func(c Claim, d Decision) bool

	// OnOverLimit is called with each rejection d of Soft whose claim is granted, except for
	// dry runs. It must not block if the limiters do not. Nil means no call.
	OnOverLimit func(c Claim, d Decision)
}

// NewSoftLimit returns a limiter that grants claims that Soft rejects, as far as Hard and
// CanBorrow allow, and marks them with Decision.OverLimit. Its uses are a warning before a limit
// is enforced, lending capacity that others do not use, and trying a limit out (see Shadow):
//
//	units            with Hard        with CanBorrow       with neither
//	  ▲
//	  │             rejected
//	  ├─ Hard ─────────────────    OverLimit, or         OverLimit
//	  │             OverLimit      rejected if CanBorrow
//	  │                            returns false
//	  ├─ Soft ─────────────────────────────────────────────────────────
//	  │             granted            granted              granted
//	  0
//
// Limit and Remaining of the decisions are those of Hard, or else of Soft. NewSoftLimit panics
// if Soft is nil.
//
// Invariant: the grants without OverLimit obey Soft, and all grants together obey Hard.
// Grants that Soft rejected take nothing from Soft, so later claims get the decisions of an
// enforced limit, and return nothing to it if they are Unused.
//
// Limitations: a claim that fits only partly into Soft is OverLimit as a whole. Claim.Ahead is
// cleared.
func NewSoftLimit(s SoftLimitConfig) Limiter {
	if s.Soft == nil {
		panic("throttle: NewSoftLimit: Soft is nil: set it")
	}
	return &softLimit{SoftLimitConfig: s}
}

// Shadow returns a soft limit that counts as l does and grants every claim, so that a limit
// can be tested on real traffic before it is enforced. Claims that l rejects are OverLimit and
// reported to onOverLimit; see SoftLimitConfig.OnOverLimit. Shadow panics if l is nil.
func Shadow(l Limiter, onOverLimit func(Claim, Decision)) Limiter {
	if l == nil {
		panic("throttle: Shadow: the limiter is nil: give the one to try out")
	}
	return NewSoftLimit(SoftLimitConfig{Soft: l, OnOverLimit: onOverLimit})
}

type softLimit struct {
	SoftLimitConfig
	subGrants SubGrants
	uncounted subGrant // that of grants which Soft rejected without a Hard; it has no owner
}

// PlusPercent returns l with Count and Burst increased by percent, rounded down, such as for a
// Hard that allows more than Soft. A negative percent decreases them.
func (l Limit) PlusPercent(percent int64) Limit {
	l.Count = ticks.Add(l.Count, ticks.Mul(percent, l.Count)/100)
	if l.Burst > 0 {
		l.Burst = ticks.Add(l.Burst, ticks.Mul(percent, l.Burst)/100)
	}
	return l
}

func (s *softLimit) SetClock(c Clock) { setClock(c, s.Soft, s.Hard) }

func (s *softLimit) Reserve(ctx context.Context, c Claim) (Decision, error) {
	if c.Ahead = 0; s.Hard != nil {
		return s.reserveBoth(ctx, c)
	}
	d, err := s.Soft.Reserve(ctx, c)
	if err == nil && !d.OK && s.mayExceed(c, d) {
		d.OK, d.OverLimit, d.Wait, d.subGrant = true, true, 0, &s.uncounted
	}
	d.Shadow = d.OK && s.CanBorrow == nil
	return d, err
}

// mayExceed reports whether c may be granted although Soft rejected it with d.
func (s *softLimit) mayExceed(c Claim, d Decision) bool {
	if s.CanBorrow != nil && !s.CanBorrow(c, d) {
		return false
	}
	if s.OnOverLimit != nil && !c.DryRun {
		s.OnOverLimit(c, d)
	}
	return true
}

// reserveBoth asks Hard and then Soft. If the claim is not granted, it is canceled at Hard.
func (s *softLimit) reserveBoth(ctx context.Context, c Claim) (Decision, error) {
	sw := startStopwatch(c)
	d, err := s.Hard.Reserve(ctx, c)
	if err != nil || !d.OK {
		d.Fresh, d.subGrant = false, nil
		return d, err
	}
	if c.Now.IsZero() {
		c.Now = d.At
	}
	granted := false
	defer func() { // also if Soft or a function panics
		if !granted && !c.DryRun {
			s.Hard.Report(ctx, c, d, Feedback{Now: sw.Now(), State: Unused})
		}
	}()
	within, err := s.Soft.Reserve(ctx, c)
	if err != nil {
		return Decision{}, err
	}
	degraded := d.Degraded || within.Degraded
	if !within.OK && !s.mayExceed(c, within) {
		within.Degraded, within.Fresh, within.subGrant = degraded, false, nil
		return within, nil
	}
	granted = true
	parts := []Decision{d, within}
	d.OverLimit = d.OverLimit || within.OverLimit || !within.OK
	d.Degraded, d.Fresh, d.subGrant = degraded, d.Fresh && within.Fresh, nil
	if c.DryRun {
		return d, nil
	}
	return s.subGrants.Wrap(d, parts), nil
}

func (s *softLimit) Report(ctx context.Context, c Claim, d Decision, f Feedback) {
	if s.Hard == nil {
		if d.subGrant != &s.uncounted {
			s.Soft.Report(ctx, c, d, f)
		}
		return
	}
	s.subGrants.Unwrap(d, f.State, func(parts []Decision) {
		if parts[1].OK {
			defer s.Soft.Report(ctx, c, parts[1], f)
		}
		s.Hard.Report(ctx, c, parts[0], f)
	})
}

func (s *softLimit) Traits() Traits {
	return mergeTraits(s.Soft.Traits(), cmp.Or(s.Hard, AllowAll).Traits())
}
