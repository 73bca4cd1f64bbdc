package monitor

import (
	"math/bits"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A meter is a token bucket that never rejects. It measures the burst that a rejecting bucket
// would have needed: after each claim, level is the least integer burst that is sufficient for the
// claim.
//
// The exact number of missing units is level - part/per. Time restores count/per units per
// nanosecond, and part holds the restored fraction of the next unit.
type meter struct {
	level int64 // units
	part  int64 // in 1/per of a unit; less than per
	at    int64 // time at which level and part are exact
}

// A drainRate is the rate at which units are restored: count units in per nanoseconds.
type drainRate struct{ count, per int64 }

func drainRateOf(l throttle.Limit) drainRate { return drainRate{l.Count, int64(l.Per)} }

// add takes n units at now, or at the latest time of m if that is later. It returns the level.
func (m *meter) add(n, now int64, p drainRate) int64 {
	m.drain(now, p)
	m.level = ticks.Add(m.level, n)
	return m.level
}

// drain restores the units of the time until now.
func (m *meter) drain(now int64, p drainRate) {
	if now <= m.at {
		return
	}
	hi, lo := bits.Mul64(uint64(now)-uint64(m.at), uint64(p.count))
	lo, carry := bits.Add64(lo, uint64(m.part), 0)
	hi, m.at = hi+carry, now
	if hi < uint64(p.per) {
		if back, part := bits.Div64(hi, lo, uint64(p.per)); back < uint64(m.level) {
			m.level, m.part = m.level-int64(back), int64(part)
			return
		}
	}
	m.level, m.part = 0, 0
}

// until returns a time at which the level will have fallen to low. It is at most the time of one
// unit too late.
func (m *meter) until(low int64, p drainRate) int64 {
	if m.level <= low {
		return m.at
	}
	return ticks.Add(m.at, ticks.MulDivUp(m.level-low, p.per, p.count))
}
