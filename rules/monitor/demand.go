package monitor

import "math/bits"

// Demand describes what sessions with at least one rejection asked for, where a claim that only
// shadow mode granted counts as rejected. Burst and Peak hold for at least 19 of 20 of these
// sessions, so that the highest demand does not determine the result.
type Demand struct {
	// Sessions is the number of sessions with a rejection, see Stats. Zero means that the demand is
	// not known.
	Sessions int64

	// Burst is the burst of a token bucket with the rate of the limit that would have granted all
	// claims of these sessions.
	Burst int64

	// Peak is the maximum number of units that these sessions asked for in any Per of the limit,
	// plus at most the units of a further sixteenth of a Per. Any limit of Peak units per Per
	// would have granted all of their claims, whatever its algorithm.
	Peak int64
}

// quantileNumerator and quantileDenominator define the share of sessions that the bounds of a
// Demand cover.
const quantileNumerator, quantileDenominator = 19, 20

// A histogram counts numbers with a resolution of a sixteenth of their size.
//
//	number   0 1 2 … 31 │ 32-33 34-35 … 62-63 │ 64-67 … 124-127 │ 128-135 …
//	slots       32      │         16          │       16        │    16
type histogram struct {
	total int64
	max   int64 // the largest number
	slots [960]int64
}

func (h *histogram) add(n, weight int64) {
	h.total, h.max = h.total+weight, max(h.max, n)
	e := max(bits.Len64(uint64(n))-5, 0)
	h.slots[16*e+int(n>>e)] += weight
}

// quantile returns a number that at least 19 of 20 numbers do not exceed.
func (h *histogram) quantile() int64 {
	sum := int64(0)
	for i, n := range h.slots {
		if sum += n; sum*quantileDenominator >= h.total*quantileNumerator {
			return min(slotMax(i), h.max)
		}
	}
	return 0
}

// slotMax returns the largest number that slot i counts.
func slotMax(i int) int64 {
	e := max(i/16-1, 0)
	return int64(i-16*e+1)<<e - 1
}

// sessionTotals holds the results of sessions that have ended.
type sessionTotals struct{ minBursts, peaks histogram }

func (s *sessionTotals) add(v *session) {
	s.minBursts.add(v.minBurst, v.weight)
	s.peaks.add(v.peak, v.weight)
}

func (s *sessionTotals) demand() Demand {
	return Demand{Sessions: s.minBursts.total, Burst: s.minBursts.quantile(), Peak: s.peaks.quantile()}
}
