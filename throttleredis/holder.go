package throttleredis

import (
	"slices"

	"github.com/heed-go/heed/throttle"
)

// HoldsUntilEnd implements throttle.Holder: a limit on concurrency needs to know when
// the work of a claim has ended.
func (l *Limiter) HoldsUntilEnd() bool { return l.limit.holds }

// HoldsUntilEnd implements throttle.Holder.
func (a *allOf) HoldsUntilEnd() bool { return a.holds() }

// HoldsUntilEnd implements throttle.Holder.
func (f *Fallback) HoldsUntilEnd() bool {
	f.once.Do(f.start)
	return f.both.HoldsUntilEnd()
}

// HoldsUntilEnd implements throttle.Holder.
func (g *gate) HoldsUntilEnd() bool { return throttle.HoldsUntilEnd(g.to) }

// HoldsUntilEnd implements throttle.Holder.
func (t *twin) HoldsUntilEnd() bool { return t.gate.HoldsUntilEnd() || throttle.HoldsUntilEnd(t.share) }

// HoldsUntilEnd implements throttle.Holder.
func (s *standIn) HoldsUntilEnd() bool { return throttle.HoldsUntilEnd(s.Limiter) }

// CountsRefusals implements throttle.RefusalCounter.
func (l *Limiter) CountsRefusals() bool { return l.limit.refusals }

// CountsRefusals implements throttle.RefusalCounter.
func (a *allOf) CountsRefusals() bool {
	return slices.ContainsFunc(a.limits, (*Limiter).CountsRefusals)
}

// CountsRefusals implements throttle.RefusalCounter.
func (f *Fallback) CountsRefusals() bool {
	f.once.Do(f.start)
	return f.both.CountsRefusals()
}

// CountsRefusals implements throttle.RefusalCounter.
func (g *gate) CountsRefusals() bool { return throttle.CountsRefusals(g.to) }

// CountsRefusals implements throttle.RefusalCounter.
func (t *twin) CountsRefusals() bool {
	return t.gate.CountsRefusals() || throttle.CountsRefusals(t.share)
}

// CountsRefusals implements throttle.RefusalCounter.
func (s *standIn) CountsRefusals() bool { return throttle.CountsRefusals(s.Limiter) }
