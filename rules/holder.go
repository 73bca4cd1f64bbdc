package rules

import "github.com/heed-go/heed/throttle"

// HoldsUntilEnd implements throttle.Holder. It is true if either a or its successor holds units
// until the end, because a claim ends at the limiter that granted it.
func (a *activeLimit) HoldsUntilEnd() bool {
	h := a.successor.Load()
	return throttle.HoldsUntilEnd(a.limiter) || h != nil && throttle.HoldsUntilEnd(h.limiter)
}

// HoldsUntilEnd implements throttle.Holder.
func (s *member) HoldsUntilEnd() bool { return s.limiter.HoldsUntilEnd() }

// HoldsUntilEnd implements throttle.Holder.
func (c *keyLimiter) HoldsUntilEnd() bool { return throttle.HoldsUntilEnd(c.inner) }

// HoldsUntilEnd implements throttle.Holder.
func (c *lazyBuckets) HoldsUntilEnd() bool { return c.get().HoldsUntilEnd() }

// CountsRefusals is the method that throttle.CountsRefusals calls.
func (s *member) CountsRefusals() bool { return s.limiter.CountsRefusals() }

// CountsRefusals is the method that throttle.CountsRefusals calls.
func (c *keyLimiter) CountsRefusals() bool { return throttle.CountsRefusals(c.inner) }
