package rules

import "github.com/heed-go/heed/throttle"

// HoldsUntilEnd implements throttle.Holder. What was granted before a reload ends at
// the limiter that granted it, so either of the two counts.
func (g *gate) HoldsUntilEnd() bool {
	h := g.heir.Load()
	return throttle.HoldsUntilEnd(g.own) || h != nil && throttle.HoldsUntilEnd(h.via)
}

// HoldsUntilEnd implements throttle.Holder.
func (s *strand) HoldsUntilEnd() bool { return s.gate.HoldsUntilEnd() }

// HoldsUntilEnd implements throttle.Holder.
func (c *cell) HoldsUntilEnd() bool { return throttle.HoldsUntilEnd(c.inner) }

// HoldsUntilEnd implements throttle.Holder.
func (l *Counted) HoldsUntilEnd() bool { return throttle.HoldsUntilEnd(l.Limiter) }

// HoldsUntilEnd implements throttle.Holder.
func (c *compact) HoldsUntilEnd() bool { return c.made().HoldsUntilEnd() }

// CountsRefusals implements throttle.RefusalCounter.
func (s *strand) CountsRefusals() bool { return s.gate.CountsRefusals() }

// CountsRefusals implements throttle.RefusalCounter.
func (c *cell) CountsRefusals() bool { return throttle.CountsRefusals(c.inner) }

// CountsRefusals implements throttle.RefusalCounter: Tally and Alarm count them.
func (l *Counted) CountsRefusals() bool { return true }
