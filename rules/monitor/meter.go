package monitor

import (
	"math/bits"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A meter is a token bucket that never refuses. It tells how large the burst of a real
// one would have had to be: after each claim, level is the least whole number of units
// that would have sufficed for it.
//
// The units that are missing are level less part/per, exactly: time brings count/per
// units per nanosecond, and what it has brought of the next whole one is kept in part.
type meter struct {
	level int64 // units
	part  int64 // in 1/per of a unit; below per
	at    int64 // reading at which it was so
}

// A drainRate is at what rate units come back.
type drainRate struct{ count, per int64 }

func drainRateOf(l throttle.Limit) drainRate { return drainRate{l.Count, int64(l.Per)} }

// add takes n units at now, or at the latest reading if that is newer. It returns the
// level.
func (m *meter) add(n, now int64, p drainRate) int64 {
	m.drain(now, p)
	m.level = ticks.Add(m.level, n)
	return m.level
}

// drain lets time pass until now.
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

// until returns a reading at which the level will have fallen to low. It may be late by
// as much as one unit takes.
func (m *meter) until(low int64, p drainRate) int64 {
	if m.level <= low {
		return m.at
	}
	return ticks.Add(m.at, ticks.MulDivUp(m.level-low, p.per, p.count))
}
