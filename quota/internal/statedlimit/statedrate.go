package statedlimit

import (
	"math"
	"time"
)

// A statedRate is the rate of a token bucket as its server states it. What is missing comes back at a constant rate until the
// reset, so each response states
//
//	rate = (limit - left) / (reset - now)
//
// between bounds, because left is a whole number and the reset is rounded. Neither the order of responses nor what others use
// matters. The more units of a window are missing, the sooner is its reset, so that no rate is within the bounds of its
// responses, unless their resets differ by no more than rounding, or as many are missing in each window. So the times until the
// resets must differ by a factor of two, or a reset must have moved before it had passed, which none of a window does. The
// zero statedRate knows nothing.
type statedRate struct {
	low, high         float64       // bounds, in units per second
	shortest, longest time.Duration // until a reset, of the responses with these bounds
	responses         int           // with these bounds, at most rateResponses
	reset             time.Time     // that the latest one states
	moved             bool          // one of them stated a later reset although that of the one before had not passed
}

const (
	rateResponses = 4   // responses with the same bounds that state a rate
	rateExact     = 1.5 // the largest quotient of the bounds
	responseExact = 2.5 // and of those of a response that counts
)

// add applies a response that states that so many units are missing, all of which come back after that time or, because that is
// rounded up, at most resolution earlier. full reports whether the bucket has been seen full: it may hold fewer units than its limit.
func (s *statedRate) add(missing int64, after, resolution time.Duration, full bool, now time.Time) {
	if missing <= 0 || after <= 0 {
		return // a full bucket states no rate
	}
	resolution = max(resolution, time.Millisecond)
	low, high := float64(missing-1)/(after+time.Millisecond).Seconds(), math.Inf(1)
	if after > resolution {
		high = float64(missing) / (after - resolution).Seconds()
	}
	if s.high == 0 || low > s.high || high < s.low {
		*s = statedRate{low: low, high: high}
	}
	s.low, s.high = max(s.low, low), min(s.high, high)
	reset := now.Add(after)
	s.moved = s.moved || full && now.Before(s.reset.Add(-resolution)) && reset.Sub(s.reset) > Tolerance+max(resolution-time.Second, 0)
	s.reset = reset
	if high > responseExact*low {
		return
	}
	if s.responses == 0 {
		s.shortest = after
	}
	s.shortest, s.longest = min(s.shortest, after), max(s.longest, after-resolution)
	s.responses = min(s.responses+1, rateResponses)
}

// known reports whether a rate is stated.
func (s *statedRate) known() bool {
	return s.responses >= rateResponses && (s.longest >= 2*s.shortest || s.moved) && s.high <= rateExact*s.low
}

// bound returns the rate within the bounds that is closest to a measured one, in units per second. If none is stated, that is the measured one.
func (s *statedRate) bound(measured float64) float64 {
	if !s.known() {
		return measured
	}
	return min(max(measured, s.low), s.high)
}
