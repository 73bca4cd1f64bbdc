package throttleredis

import (
	"math"
	"math/bits"
	"time"

	"github.com/heed-go/heed/throttle"
)

// Lua counts in doubles, which are exact up to 2^53. These leave room for sums.
const (
	maxWindow = 1 << 51 // ticks of a full bucket
	maxUnits  = 1 << 52 // units of a claim: more than any limit has
	maxCount  = 1 << 50 // units of a limit that a script counts one by one
	maxScale  = 1 << 22 // ticks per microsecond, see booking
)

// ticks are the unit of time in which the interval of a rate is whole. With g the greatest
// common divisor of Count and Per, a unit takes Per/g of them, and a microsecond is
// 1000*Count/g if Per is in nanoseconds; both are made smaller by what they have in
// common. So 3 a second is 3 a second for ever.
//
// Where that would not fit, scale is lowered and interval rounded up, which makes the
// rate lower, never higher.
type ticks struct {
	interval int64 // that a unit takes to come back
	scale    int64 // in a microsecond
	burst    int64 // most units at once
}

func ticksOf(l throttle.Limit) ticks {
	if l.Validate() != nil {
		return ticks{1, 1, 1} // nobody gets to see it
	}
	burst := l.Burst
	if burst == 0 {
		burst = l.Count
	}
	g := gcd(l.Count, int64(l.Per))
	count, per := l.Count/g, int64(l.Per)/g
	k := gcd(1000, per)
	t := ticks{interval: per / k, scale: mulSat(count, 1000/k)}
	fit := int64(maxScale)
	if w := float64(burst) * float64(t.interval); w > maxWindow/2 {
		fit = min(fit, int64(float64(t.scale)*(maxWindow/2/w)))
	}
	if t.scale > fit {
		fit = max(fit, 1)
		t.interval, t.scale = mulDivUp(t.interval, fit, t.scale), fit
	}
	t.burst = max(min(burst, maxWindow/t.interval), 1)
	return t
}

func (t ticks) window() int64 { return t.burst * t.interval }

// duration returns how long n ticks last, rounded up to whole nanoseconds.
func (t ticks) duration(n int64) time.Duration { return duration(n, t.scale) }

// duration returns how long n ticks last if there are scale in a microsecond, rounded up
// to whole nanoseconds; forever if n is negative.
func duration(n, scale int64) time.Duration {
	if n < 0 {
		return throttle.Forever
	}
	return time.Duration(mulDivUp(n, 1000, scale))
}

// wholeMicros returns d rounded up to whole microseconds: the server's clock shows no
// less, and who comes a part of one too early is refused.
func wholeMicros(d time.Duration) time.Duration {
	if d > math.MaxInt64-1000 {
		return d
	}
	return (d + 999) / 1000 * 1000
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// mulSat returns a*b, or math.MaxInt64 if it is more; neither may be negative.
func mulSat(a, b int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

// mulDivUp returns a*b/c rounded up, or math.MaxInt64 if it is more.
func mulDivUp(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	lo, carry := bits.Add64(lo, uint64(c-1), 0)
	if hi += carry; hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}

// mulDiv returns a*b/c rounded down, or math.MaxInt64 if it is more.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(q, math.MaxInt64))
}
