package warmup

import (
	"math"
	"time"
)

// advance converts the time that has passed since next to idle units.
func (s *state) advance(p *costs, now int64) {
	if now > s.next {
		s.idle = min(p.maxIdle, s.idle+float64(subSat(now, s.next))/p.coolDownInterval)
		s.next, s.roundedUp = now, 0
	}
}

// take uses n units as of now, idle ones first, and returns how many idle ones it used.
//
// A claim that is booked ahead does not use idle units that take no time (BurstyConfig). Such
// units exist while claims are booked only after a Cancel has returned them. A claim that used
// them would act at next without moving next, so that later claims and Cancel could not take
// it into account.
func (s *state) take(p *costs, n float64, now int64) (used float64) {
	s.advance(p, now)
	booked := s.next > now
	if !booked || !p.idleUnitsAreFree() {
		used = min(n, s.idle)
	}
	cost := p.total(s.idle, n, used) - s.roundedUp
	ns := math.Ceil(cost)
	if booked {
		ns = max(ns, 1)
	}
	s.next, s.roundedUp = addSat(s.next, toInt64(ns)), max(ns-cost, 0)
	s.idle -= used
	return used
}

// total returns how long n units take if used of them are idle units.
func (p *costs) total(idle, n, used float64) float64 {
	return p.cost(idle, used) + (n-used)*p.stableInterval
}

// read returns now in nanoseconds since the start, or the clock's own reading if now is
// zero.
func (l *Limiter) read(now time.Time) int64 {
	switch {
	case !now.IsZero():
		return int64(now.Sub(l.start))
	case l.clock == nil:
		return int64(time.Since(l.start))
	}
	return int64(l.clock.Now().Sub(l.start))
}

// stamp returns the reading that a decision as of now is based on: the caller's own
// value, if now is what read made of it.
func (l *Limiter) stamp(now, given int64, callers time.Time) time.Time {
	if now == given && !callers.IsZero() {
		return callers
	}
	return l.start.Add(time.Duration(now))
}

func addSat(a, b int64) int64 {
	if s := a + b; (s > a) == (b > 0) {
		return s
	}
	if b > 0 {
		return math.MaxInt64
	}
	return math.MinInt64
}

func subSat(a, b int64) int64 {
	if d := a - b; (d < a) == (b > 0) {
		return d
	}
	if b > 0 {
		return math.MinInt64
	}
	return math.MaxInt64
}
