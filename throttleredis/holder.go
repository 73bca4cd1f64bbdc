package throttleredis

import (
	"slices"

	"github.com/heed-go/heed/throttle"
)

// HoldsUntilEnd implements throttle.Holder. It returns true for a concurrency limit, whose
// units are held until the claim has ended.
func (l *Limiter) HoldsUntilEnd() bool { return l.limit.holdsUntilEnd }

// HoldsUntilEnd implements throttle.Holder.
func (a *allOf) HoldsUntilEnd() bool { return a.anyHolds() }

// HoldsUntilEnd implements throttle.Holder.
func (f *Fallback) HoldsUntilEnd() bool {
	f.once.Do(f.setup)
	return f.inner.HoldsUntilEnd()
}

// HoldsUntilEnd implements throttle.Holder.
func (g *guardedCaller) HoldsUntilEnd() bool { return throttle.HoldsUntilEnd(g.limiter) }

// HoldsUntilEnd implements throttle.Holder.
func (t *mirroredLimiter) HoldsUntilEnd() bool {
	return t.guardedCaller.HoldsUntilEnd() || throttle.HoldsUntilEnd(t.share)
}

// HoldsUntilEnd implements throttle.Holder.
func (s *degraded) HoldsUntilEnd() bool { return throttle.HoldsUntilEnd(s.Limiter) }

// CountsRefusals is the method that throttle.CountsRefusals calls.
func (l *Limiter) CountsRefusals() bool { return l.limit.countsRefusals }

// CountsRefusals is the method that throttle.CountsRefusals calls.
func (a *allOf) CountsRefusals() bool {
	return slices.ContainsFunc(a.limits, (*Limiter).CountsRefusals)
}

// CountsRefusals is the method that throttle.CountsRefusals calls.
func (f *Fallback) CountsRefusals() bool {
	f.once.Do(f.setup)
	return f.inner.CountsRefusals()
}

// CountsRefusals is the method that throttle.CountsRefusals calls.
func (g *guardedCaller) CountsRefusals() bool { return throttle.CountsRefusals(g.limiter) }

// CountsRefusals is the method that throttle.CountsRefusals calls.
func (t *mirroredLimiter) CountsRefusals() bool {
	return t.guardedCaller.CountsRefusals() || throttle.CountsRefusals(t.share)
}

// CountsRefusals is the method that throttle.CountsRefusals calls.
func (s *degraded) CountsRefusals() bool { return throttle.CountsRefusals(s.Limiter) }
