package throttle

import (
	"context"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// Three limiters grant what a limit would refuse, and say so in Decision.OverLimit. A
// server warns by it before it refuses, lends what nobody uses, or tries a limit
// out before it is enforced:
//
//	units            Soft              Elastic              Shadow
//	  ▲
//	  │             refused       Over, or refused           Over
//	  ├─ Hard ─────────────────        when Spare
//	  │              Over              says no
//	  ├─ the limit ────────────────────────────────────────────────────
//	  │             granted            granted              granted
//	  0

// SoftLimit grants claims up to Hard, and marks those that Limit would have refused. For
// 100 a minute and 10 % on top:
//
//	l := throttle.Limit{Count: 100, Per: time.Minute}
//	soft := &throttle.SoftLimit{
//		Limit: throttle.NewTokenBucket(l, nil),
//		Hard:  throttle.NewTokenBucket(l.Plus(10), nil),
//	}
//
// Limit and Remaining of its decisions are those of Hard: that much can be had.
//
// Invariant: what is granted obeys Hard, and what is granted without a mark obeys
// Limit as well.
//
// The odd case is a claim of which a part would fit into Limit: all of it is over.
// It takes nothing from Limit, so that a smaller one may still be granted without a
// mark.
//
// Both limiters must be set and may not change. Neither books ahead. A Soft must not
// be copied.
type SoftLimit struct {
	Soft Limiter // what callers are to keep to
	Hard Limiter // what they get; it should allow more than Limit does

	subGrants SubGrants
}

// PlusPercent returns l with so many percent more, rounded down: Count and Burst grow
// alike. A negative percent makes l smaller; the result must still be valid.
func (l Limit) PlusPercent(percent int64) Limit {
	l.Count = ticks.Add(l.Count, ticks.Mul(percent, l.Count)/100)
	if l.Burst > 0 {
		l.Burst = ticks.Add(l.Burst, ticks.Mul(percent, l.Burst)/100)
	}
	return l
}

// Reserve implements Limiter.
func (s *SoftLimit) Reserve(ctx context.Context, c Claim) (Decision, error) {
	c.MaxWait = 0
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

// Observe implements Observer: both limits hear of what they granted.
func (s *SoftLimit) Observe(ctx context.Context, c Claim, d Decision, f Feedback) {
	if t := s.subGrants.lookup(d, f.Partial); t != nil {
		defer t.release()
		if t.parts[1].OK {
			defer Observe(ctx, s.Soft, c, t.parts[1], f)
		}
		Observe(ctx, s.Hard, c, t.parts[0], f)
	}
}

// Local implements Local.
func (s *SoftLimit) NonBlocking() bool { return IsNonBlocking(s.Soft) && IsNonBlocking(s.Hard) }

// HoldsUntilEnd implements Holder.
func (s *SoftLimit) HoldsUntilEnd() bool { return HoldsUntilEnd(s.Soft) || HoldsUntilEnd(s.Hard) }

// Idle implements Idler.
func (s *SoftLimit) Evictable(now time.Time) bool { return allEvictable(now, s.Soft, s.Hard) }

// CountsRefusals implements RefusalCounter.
func (s *SoftLimit) CountsRefusals() bool { return CountsRefusals(s.Hard) || CountsRefusals(s.Soft) }

// Borrowing grants what Limiter refuses for as long as Spare says that there is room:
// a limit that protects others from one caller need not hold while others are away.
// What it lends is marked, takes nothing from Limiter, and is nothing to give back.
//
// Invariant: what is granted without a mark obeys Limiter. What is lent is bounded
// by Spare alone.
//
// The odd case is a claim larger than the limit, which Limiter would refuse for
// ever: Spare is asked for it like for any other.
//
// Both fields must be set and may not change. An Elastic must not be copied.
type Borrowing struct {
	Limiter Limiter // what is granted without asking Spare

	// CanBorrow reports whether c may be granted although Limiter refused it, by d. It
	// is called for dry runs as well, and concurrently by several goroutines. No lock
	// is held. It must not block if Limiter is Local.
	CanBorrow func(c Claim, d Decision) bool

	uncounted subGrant
}

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

// Local implements Local.
func (e *Borrowing) NonBlocking() bool { return IsNonBlocking(e.Limiter) }

// HoldsUntilEnd implements Holder.
func (e *Borrowing) HoldsUntilEnd() bool { return HoldsUntilEnd(e.Limiter) }

// Idle implements Idler.
func (e *Borrowing) Evictable(now time.Time) bool { return allEvictable(now, e.Limiter) }

// CountsRefusals implements RefusalCounter.
func (e *Borrowing) CountsRefusals() bool { return CountsRefusals(e.Limiter) }

// Shadow counts as Limiter does, and refuses nothing: a limit can be tried out on
// what really happens before anybody suffers from it. What Limiter would have
// refused is marked, and told to OnRefusal. A refusal takes nothing from Limiter, so
// that later claims get the answers that they would get from a limit in force.
//
// Invariant: what is granted without a mark obeys Limiter. A Shadow delays nothing:
// Limiter is not asked to book ahead, whatever Claim.MaxWait says.
//
// The odd case is a claim on which Limiter reaches no decision: its error is passed
// on. To let it go by as well, put a Fallback to Unlimited inside.
//
// Limiter must be set; neither field may change. A Shadow must not be copied.
type Shadow struct {
	Limiter Limiter

	// OnRefusal is called with each refusal of Limiter, except those of dry runs. No
	// lock is held. It must not block if Limiter is Local. Nil means no call.
	OnRefusal func(c Claim, d Decision)

	uncounted subGrant
}

// Reserve implements Limiter.
func (s *Shadow) Reserve(ctx context.Context, c Claim) (Decision, error) {
	c.MaxWait = 0
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

// Local implements Local.
func (s *Shadow) NonBlocking() bool { return IsNonBlocking(s.Limiter) }

// HoldsUntilEnd implements Holder.
func (s *Shadow) HoldsUntilEnd() bool { return HoldsUntilEnd(s.Limiter) }

// Idle implements Idler.
func (s *Shadow) Evictable(now time.Time) bool { return allEvictable(now, s.Limiter) }

// CountsRefusals implements RefusalCounter.
func (s *Shadow) CountsRefusals() bool { return CountsRefusals(s.Limiter) }
