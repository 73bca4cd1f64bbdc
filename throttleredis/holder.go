package throttleredis

import "github.com/heed-go/heed/throttle"

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
