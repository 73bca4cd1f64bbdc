package warmup

import (
	"math"

	"github.com/heed-go/heed/internal/ticks"
)

// advance makes idle units of the time that has passed since next.
func (s *state) advance(p *costs, now int64) {
	if now > s.next {
		s.idle = min(p.maxIdle, s.idle+float64(ticks.Sub(now, s.next))/p.coolDownInterval)
		s.next, s.roundedUp = now, 0
	}
}

// take uses n units as of now, from idle ones first. It returns how many of those.
//
// Who books ahead uses none that are free: they come back only by a Cancel while
// others are in line, and would let a claim stand at the end of the line without moving
// it, where nobody knows of it.
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
	s.next, s.roundedUp = ticks.Add(s.next, ticks.Int64(ns)), max(ns-cost, 0)
	s.idle -= used
	return used
}

// total returns how long n units take, of which so many are idle ones.
func (p *costs) total(idle, n, used float64) float64 {
	return p.cost(idle, used) + (n-used)*p.stableInterval
}
