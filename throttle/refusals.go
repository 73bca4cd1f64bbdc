package throttle

import (
	"context"
	"slices"
	"time"
)

// A RefusalCounter is a Limiter that can say whether its decisions depend on how many
// claims it has refused, as those of Penalty do. It counts no refusal of a claim that
// Waits. When such a wait has failed, a Waiter repeats the claim once without Waits, so
// that a wait counts as one refusal. Limiters that wrap others report it for them.
type RefusalCounter interface {
	CountsRefusals() bool
}

// CountsRefusals reports whether l is a RefusalCounter whose decisions depend on how many
// claims it has refused.
func CountsRefusals(l Limiter) bool {
	c, ok := l.(RefusalCounter)
	return ok && c.CountsRefusals()
}

// CountsRefusals implements RefusalCounter.
func (*Penalty) CountsRefusals() bool { return true }

// CountsRefusals implements RefusalCounter.
func (*AcceptRatio) CountsRefusals() bool { return true }

// CountsRefusals implements RefusalCounter.
func (s *SlidingLog) CountsRefusals() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.CountRefused
}

// CountsRefusals implements RefusalCounter. The limiters that New makes may count them.
func (*Keyed) CountsRefusals() bool { return true }

// CountsRefusals implements RefusalCounter.
func (a *allOf) CountsRefusals() bool { return slices.ContainsFunc(a.ls, CountsRefusals) }

// CountsRefusals implements RefusalCounter.
func (f *Fallback) CountsRefusals() bool { return CountsRefusals(f.Primary) || CountsRefusals(f.Secondary) }

// CountsRefusals implements RefusalCounter.
func (s *Soft) CountsRefusals() bool { return CountsRefusals(s.Hard) || CountsRefusals(s.Limit) }

// CountsRefusals implements RefusalCounter.
func (e *Elastic) CountsRefusals() bool { return CountsRefusals(e.Limiter) }

// CountsRefusals implements RefusalCounter.
func (s *Shadow) CountsRefusals() bool { return CountsRefusals(s.Limiter) }

// countRefusal lets the limits of t that count refusals count that its wait has failed.
// It is called without the lock, in the goroutine of the caller.
func (w *Waiter) countRefusal(ctx context.Context, t *Ticket) {
	for i := range t.Demands {
		m := &t.Demands[i]
		if !CountsRefusals(m.Limiter) {
			continue
		}
		c := Claim{Key: m.Key, Cost: m.Cost, Now: w.time.at(w.time.read(time.Time{}))}
		if d, err := m.Limiter.Reserve(ctx, c); err == nil && d.OK { // another limit refused
			m.Limiter.Cancel(lasting(ctx, m.Limiter), c, d)
		}
	}
}
