package throttle

import (
	"slices"
)

// A RefusalCounter is a Limiter that can say whether its decisions depend on how many
// claims it has refused, as those of a keyed.Ban do. It counts no refusal of a claim that
// Waits. When such a wait has failed, a queue.Queue repeats the claim once without Waits, so
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
func (*AdmissionControl) CountsRefusals() bool { return true }

// CountsRefusals implements RefusalCounter.
func (s *SlidingLog) CountsRefusals() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config.CountRefused
}

// CountsRefusals implements RefusalCounter.
func (a *allOf) CountsRefusals() bool { return slices.ContainsFunc(a.limiters, CountsRefusals) }

// CountsRefusals implements RefusalCounter.
func (f *Fallback) CountsRefusals() bool {
	return CountsRefusals(f.Primary) || CountsRefusals(f.Secondary)
}

// CountsRefusals implements RefusalCounter.
func (s *SoftLimit) CountsRefusals() bool { return CountsRefusals(s.Hard) || CountsRefusals(s.Soft) }

// CountsRefusals implements RefusalCounter.
func (e *Borrowing) CountsRefusals() bool { return CountsRefusals(e.Limiter) }

// CountsRefusals implements RefusalCounter.
func (s *Shadow) CountsRefusals() bool { return CountsRefusals(s.Limiter) }
