package monitor

import "math/bits"

// Demand is what those asked for who were refused at least once, or would have been but
// for a shadow. The two bounds hold for at least 19 of 20 of them, so that the greediest
// do not decide for all.
type Demand struct {
	Sessions int64 // of keys that were refused, see Stats; 0: what they asked for is not known

	// Burst is the burst of a token bucket, with the rate of the limit, that would have
	// granted them everything.
	Burst int64

	// Peak is the most units that they asked for in any Per of the limit; it may be too
	// large by what came in a sixteenth of a Per more. A limit of so many would have
	// granted them everything, whatever its algorithm.
	Peak int64
}

// quantileNumerator of 20 visits are below the bounds of a Demand.
const quantileNumerator, quantileDenominator = 19, 20

// A histogram counts numbers up to a sixteenth of their size.
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

// quantile returns a number that at least 19 of 20 do not exceed.
func (h *histogram) quantile() int64 {
	sum := int64(0)
	for i, n := range h.slots {
		if sum += n; n > 0 && sum*quantileDenominator >= h.total*quantileNumerator {
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

// sessionTotals is what is kept of visits that are over.
type sessionTotals struct{ minBursts, peaks histogram }

func (s *sessionTotals) add(v *session) {
	s.minBursts.add(v.minBurst, v.weight)
	s.peaks.add(v.peak, v.weight)
}

func (s *sessionTotals) demand() Demand {
	return Demand{Sessions: s.minBursts.total, Burst: s.minBursts.quantile(), Peak: s.peaks.quantile()}
}
