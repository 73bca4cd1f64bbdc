package rate

import (
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// Limit is a number of units per second. Zero, a negative value and NaN mean that no units
// are restored.
//
// A Limiter calculates with a fraction that differs from the float64 by less than 5e-16 of
// its value: the interval of one unit if that is a whole number of nanoseconds, such as 30 ms
// for Every(30 * time.Millisecond), or else the simplest fraction, such as 100 per minute for
// 100.0 / 60. Fractions of up to 16 million units in a whole number of nanoseconds are exact.
// Others are rounded down: by less than 1e-10 for limits up to 1e6 with bursts up to 1e7, and
// by less than a millionth for limits up to 16e9 with bursts up to 5e11. Limits above 1.6e16
// count as 1.6e16, and those below one unit in 36 years as 0.
type Limit float64

// Inf is the limit that allows everything, whatever the burst.
const Inf = Limit(math.MaxFloat64)

// InfDuration is the delay of a Reservation that is not OK.
const InfDuration = throttle.Forever

// Every returns the limit of one unit per interval. It returns Inf if interval is zero or
// negative.
func Every(interval time.Duration) Limit {
	if interval <= 0 {
		return Inf
	}
	return Limit(1 / interval.Seconds())
}

const (
	// maxRefill is the longest time in which a burst may be restored. throttle.Limit.Validate
	// allows 36.5 years.
	maxRefill = 36 * 365 * 24 * time.Hour

	// maxPerNanosecond is the highest rate that package internal/gcra can express.
	maxPerNanosecond = 1 << 24

	// infPeriod is the period in nanoseconds in which Inf restores maxPerNanosecond units. As
	// it is odd, a millionth of a unit is still expressed.
	infPeriod = 1<<20 - 1

	// maxExact is the number up to which a float64 expresses all integers.
	maxExact = 1 << 53
)

// restores reports whether the limit is high enough to count as more than 0.
func (l Limit) restores() bool { return float64(l)*maxRefill.Seconds() >= 1 }

// withBurst returns the limit and a burst as a throttle.Limit. A burst below 1 becomes 1, and
// one that takes more than maxRefill is lowered. A limit that does not restore becomes one
// burst per maxRefill, and Inf 16 units per nanosecond.
func (l Limit) withBurst(burst int64) throttle.Limit {
	burst = max(burst, 1)
	if !l.restores() {
		burst = min(burst, int64(maxRefill))
		return throttle.Limit{Count: 1, Per: maxRefill / time.Duration(burst), Burst: burst}
	}
	count, per := int64(maxPerNanosecond), time.Duration(infPeriod)
	if l < Inf {
		count, per = l.fraction()
	}
	most := ticks.Int64(float64(count) / float64(per) * float64(maxRefill))
	return throttle.Limit{Count: count, Per: per, Burst: max(min(burst, most), 1)}
}

// fraction returns l as count units per period: one unit per interval if that is a whole
// number of nanoseconds, else the first convergent of the continued fraction of l that is as
// close as rounding allows, else a fraction that is rounded down. l.restores() must be true.
func (l Limit) fraction() (count int64, per time.Duration) {
	x := float64(l)
	if x >= maxPerNanosecond*1e9 {
		return maxPerNanosecond, time.Nanosecond
	}
	if ns := math.Round(1e9 / x); isClose(1e9/ns, x) {
		return 1, time.Duration(ns)
	}
	p, q := 1.0, 0.0 // the latest convergent, and the one before it
	formerP, formerQ := 0.0, 1.0
	for rest := x; ; {
		digit := math.Floor(rest)
		p, formerP = digit*p+formerP, p
		q, formerQ = digit*q+formerQ, q
		if !(p <= maxExact && q <= maxExact) {
			break
		}
		if p > 0 && isClose(p/q, x) {
			if count, per, ok := reduce(int64(p), int64(q)); ok {
				return count, per
			}
			break
		}
		rest = 1 / (rest - digit)
	}
	units := min(max(math.Floor(x/1e9*maxExact), 1), maxExact)
	return int64(units), ticks.CeilDuration(units / x * 1e9)
}

// isClose reports whether a and x are equal except for rounding. Every rounds twice.
func isClose(a, x float64) bool { return math.Abs(a-x) <= x*0x1p-51 }

// reduce returns p units in q seconds in lowest terms. ok is false if a time.Duration cannot
// express them. p and q have no common divisor.
func reduce(p, q int64) (count int64, per time.Duration, ok bool) {
	g := ticks.GCD(p, int64(time.Second))
	ns := ticks.Mul(int64(time.Second)/g, q)
	return p / g, time.Duration(ns), ns < math.MaxInt64
}
