package warmup

import (
	"math"

	"github.com/heed-go/heed/internal/ticks"
)

// advance converts the time that has passed since next to idle units.
func (s *state) advance(p *costs, now int64) {
	if now > s.next {
		s.idle = min(p.maxIdle, s.idle+float64(ticks.Sub(now, s.next))/p.coolDownInterval)
		s.next, s.roundedUp = now, 0
	}
}

// take uses n units as of now, idle ones first, and returns how many idle ones it used.
//
// A claim that is booked ahead does not use idle units that take no time (BurstyConfig). Such
// units exist while claims are booked only after an Unused claim has returned them. A claim that used
// them would act at next without moving next, so that later claims and Unused ones could not take
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
	s.next, s.roundedUp = ticks.Add(s.next, ticks.Int64(ns)), max(ns-cost, 0)
	s.idle -= used
	return used
}

// total returns how long n units take if used of them are idle units.
func (p *costs) total(idle, n, used float64) float64 {
	return p.cost(idle, used) + (n-used)*p.stableInterval
}
