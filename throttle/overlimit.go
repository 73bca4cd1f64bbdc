package throttle

import (
	"context"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// Three limiters grant claims that a limit would reject, and mark them with
// Decision.OverLimit: SoftLimit warns before it rejects, Borrowing lends unused capacity,
// and Shadow tests a limit before it is enforced.
//
//	units            SoftLimit        Borrowing            Shadow
//	  ▲
//	  │             rejected       OverLimit, or         OverLimit
//	  ├─ Hard ─────────────────    rejected if CanBorrow
//	  │             OverLimit      returns false
//	  ├─ the limit ────────────────────────────────────────────────────
//	  │             granted            granted              granted
//	  0

// SoftLimit grants claims up to Hard, and sets Decision.OverLimit for those that Soft
// would reject. For 100 per minute and 10 % more:
//
//	l := throttle.Limit{Count: 100, Per: time.Minute}
//	soft := &throttle.SoftLimit{
//		Soft: throttle.NewTokenBucket(l),
//		Hard: throttle.NewTokenBucket(l.PlusPercent(10)),
//	}
//
// Limit and Remaining of its decisions are those of Hard.
//
// Invariant: all grants together obey Hard, and the grants without OverLimit obey Soft.
//
// Limitations: a claim that fits only partly into Soft is OverLimit as a whole. It takes
// nothing from Soft, so that a smaller claim may still be granted without OverLimit.
//
// Both limiters must be set and may not change. Neither books ahead. A SoftLimit must not
// be copied.
type SoftLimit struct {
	// Soft is the limit above which grants are OverLimit.
	Soft Limiter

	// Hard is the limit that is enforced. It should allow more than Soft.
	Hard Limiter

	subGrants SubGrants
}

// PlusPercent returns l with Count and Burst increased by percent, rounded down. A
// negative percent decreases them; the result must still be valid.
func (l Limit) PlusPercent(percent int64) Limit {
	l.Count = ticks.Add(l.Count, ticks.Mul(percent, l.Count)/100)
	if l.Burst > 0 {
		l.Burst = ticks.Add(l.Burst, ticks.Mul(percent, l.Burst)/100)
	}
	return l
}

// SetClock sets the clock of the limiters; see WithClock.
func (s *SoftLimit) SetClock(c Clock) { setClock(c, s.Soft, s.Hard) }

// Reserve implements Limiter.
func (s *SoftLimit) Reserve(ctx context.Context, c Claim) (Decision, error) {
	sw := startStopwatch(c)
	d, err := s.Hard.Reserve(ctx, c)
	if err != nil || !d.OK {
		d.subGrant = nil
		return d, err
	}
	if c.Now.IsZero() {
		c.Now = d.At
	}
	decided := false
	defer func() { // also if Limit panics
		if c.Now = sw.Now(); !decided && !c.DryRun {
			s.Hard.Cancel(ctx, c, d)
		}
	}()
	within, err := s.Soft.Reserve(ctx, c)
	if err != nil {
		return Decision{}, err
	}
	decided = true
	over := d.OverLimit || within.OverLimit || !within.OK
	if c.DryRun {
		d.OverLimit, d.subGrant = over, nil
		return d, nil
	}
	t := s.subGrants.get(2)
	t.parts[0], t.parts[1] = d, within
	d.OverLimit = over
	return t.attach(d), nil
}

// Cancel implements Limiter.
func (s *SoftLimit) Cancel(ctx context.Context, c Claim, d Decision) {
	if t := s.subGrants.lookup(d, false); t != nil {
		defer t.release()
		if t.parts[1].OK {
			defer s.Soft.Cancel(ctx, c, t.parts[1])
		}
		s.Hard.Cancel(ctx, c, t.parts[0])
	}
}

// Observe implements Observer: it reports to each limit that granted the claim.
func (s *SoftLimit) Observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	if t := s.subGrants.lookup(d, f.Partial); t != nil {
		defer t.release()
		if t.parts[1].OK {
			defer Observe(ctx, s.Soft, c, t.parts[1], f)
		}
		Observe(ctx, s.Hard, c, t.parts[0], f)
	}
}

// NonBlocking implements NonBlocking.
func (s *SoftLimit) NonBlocking() bool { return IsNonBlocking(s.Soft) && IsNonBlocking(s.Hard) }

// HoldsUntilEnd implements Holder.
func (s *SoftLimit) HoldsUntilEnd() bool { return HoldsUntilEnd(s.Soft) || HoldsUntilEnd(s.Hard) }

// Evictable implements Evictable.
func (s *SoftLimit) Evictable(now time.Time) bool { return allEvictable(now, s.Soft, s.Hard) }

// CountsRefusals implements RefusalCounter.
func (s *SoftLimit) CountsRefusals() bool { return CountsRefusals(s.Hard) || CountsRefusals(s.Soft) }

// Borrowing grants the claims that Limiter grants, and those that Limiter rejects while
// CanBorrow returns true. It lets a caller exceed its limit while other callers do not use
// theirs. Borrowed grants are OverLimit, take nothing from Limiter, and return nothing in
// Cancel.
//
// Invariant: the grants without OverLimit obey Limiter. The borrowed grants are bounded by
// CanBorrow alone.
//
// Limitations: CanBorrow is also asked for a claim larger than the limit, which Limiter
// can never grant.
//
// Both fields must be set and may not change. A Borrowing must not be copied.
type Borrowing struct {
	// Limiter grants claims without asking CanBorrow.
	Limiter Limiter

	// CanBorrow reports whether c may be granted although Limiter rejected it with d. It is
	// also called for dry runs, by several goroutines at the same time, without a lock held.
	// It must not block if Limiter is NonBlocking.
	CanBorrow func(c Claim, d Decision) bool

	uncounted subGrant
}

// SetClock sets the clock of the limiters; see WithClock.
func (e *Borrowing) SetClock(c Clock) { setClock(c, e.Limiter) }

// Reserve implements Limiter.
func (e *Borrowing) Reserve(ctx context.Context, c Claim) (Decision, error) {
	d, err := e.Limiter.Reserve(ctx, c)
	if err != nil || d.OK || !e.CanBorrow(c, d) {
		return d, err
	}
	return e.uncounted.grantUncounted(d), nil
}

// Cancel implements Limiter.
func (e *Borrowing) Cancel(ctx context.Context, c Claim, d Decision) {
	if !e.uncounted.isUncounted(d) {
		e.Limiter.Cancel(ctx, c, d)
	}
}

// Observe implements Observer.
func (e *Borrowing) Observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	if !e.uncounted.isUncounted(d) {
		Observe(ctx, e.Limiter, c, d, f)
	}
}

// NonBlocking implements NonBlocking.
func (e *Borrowing) NonBlocking() bool { return IsNonBlocking(e.Limiter) }

// HoldsUntilEnd implements Holder.
func (e *Borrowing) HoldsUntilEnd() bool { return HoldsUntilEnd(e.Limiter) }

// Evictable implements Evictable.
func (e *Borrowing) Evictable(now time.Time) bool { return allEvictable(now, e.Limiter) }

// CountsRefusals implements RefusalCounter.
func (e *Borrowing) CountsRefusals() bool { return CountsRefusals(e.Limiter) }

// Shadow counts as Limiter does and grants every claim, so that a limit can be tested on
// real traffic before it is enforced. Claims that Limiter rejects are granted with
// OverLimit and reported to OnRefusal. A rejection takes nothing from Limiter, so later
// claims get the decisions of an enforced limit.
//
// Invariant: the grants without OverLimit obey Limiter.
// A Shadow is not a Booker, so that it delays no claim.
//
// Limitations: an error of Limiter is returned. To grant claims in that case too, use a
// Fallback with AllowAll as Limiter's Secondary.
//
// Limiter must be set; no field may change after the first use. A Shadow must not be
// copied.
type Shadow struct {
	// Limiter is the limit to test.
	Limiter Limiter

	// OnRefusal is called with each rejection of Limiter, except for dry runs, without a lock
	// held. It must not block if Limiter is NonBlocking. Nil means no call.
	OnRefusal func(c Claim, d Decision)

	uncounted subGrant
}

// SetClock sets the clock of the limiters; see WithClock.
func (s *Shadow) SetClock(c Clock) { setClock(c, s.Limiter) }

// Reserve implements Limiter.
func (s *Shadow) Reserve(ctx context.Context, c Claim) (Decision, error) {
	d, err := s.Limiter.Reserve(ctx, c)
	if err != nil || d.OK {
		return d, err
	}
	if s.OnRefusal != nil && !c.DryRun {
		s.OnRefusal(c, d)
	}
	return s.uncounted.grantUncounted(d), nil
}

// Cancel implements Limiter.
func (s *Shadow) Cancel(ctx context.Context, c Claim, d Decision) {
	if !s.uncounted.isUncounted(d) {
		s.Limiter.Cancel(ctx, c, d)
	}
}

// Observe implements Observer.
func (s *Shadow) Observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	if !s.uncounted.isUncounted(d) {
		Observe(ctx, s.Limiter, c, d, f)
	}
}

// NonBlocking implements NonBlocking.
func (s *Shadow) NonBlocking() bool { return IsNonBlocking(s.Limiter) }

// HoldsUntilEnd implements Holder.
func (s *Shadow) HoldsUntilEnd() bool { return HoldsUntilEnd(s.Limiter) }

// Evictable implements Evictable.
func (s *Shadow) Evictable(now time.Time) bool { return allEvictable(now, s.Limiter) }

// CountsRefusals implements RefusalCounter.
func (s *Shadow) CountsRefusals() bool { return CountsRefusals(s.Limiter) }
