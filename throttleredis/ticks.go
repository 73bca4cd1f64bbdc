package throttleredis

import (
	"cmp"
	"math"
	"time"

	saturated "github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// Lua counts in doubles, which are exact up to 2^53. The following maximum values are small
// enough that sums of two are exact.
const (
	maxWindow = 1 << 51 // ticks of a full bucket
	maxUnits  = 1 << 52 // units of a claim: more than any limit has
	maxCount  = 1 << 50 // units of a limit that a script counts one by one
	maxScale  = 1 << 22 // ticks per microsecond, see readingBits
)

// A tickRate expresses a limit in ticks, the unit of time in which the interval of a rate is a whole number. With g the
// greatest common divisor of Count and Per, a unit takes Per/g ticks, and a microsecond has
// 1000*Count/g ticks if Per is in nanoseconds; both are divided by their greatest common
// divisor. A rate of 3 units per second is therefore exact.
//
// If the numbers are too large, scale is lowered and interval is rounded up, which makes
// the rate lower, never higher.
type tickRate struct {
	interval int64 // ticks in which one unit is restored
	scale    int64 // ticks per microsecond
	burst    int64 // maximum number of units at the same time
}

func ticksOf(l throttle.Limit) tickRate {
	if l.Validate() != nil {
		return tickRate{1, 1, 1} // not used: the configuration is invalid
	}
	burst := cmp.Or(l.Burst, l.Count)
	g := saturated.GCD(l.Count, int64(l.Per))
	count, per := l.Count/g, int64(l.Per)/g
	k := saturated.GCD(1000, per)
	t := tickRate{interval: per / k, scale: saturated.Mul(count, 1000/k)}
	fit := int64(maxScale)
	if w := float64(burst) * float64(t.interval); w > maxWindow/2 {
		fit = min(fit, int64(float64(t.scale)*(maxWindow/2/w)))
	}
	if t.scale > fit {
		fit = max(fit, 1)
		t.interval, t.scale = saturated.MulDivUp(t.interval, fit, t.scale), fit
	}
	t.burst = max(min(burst, maxWindow/t.interval), 1)
	return t
}

func (t tickRate) window() int64 { return t.burst * t.interval }

// duration returns the length of n ticks, rounded up to whole nanoseconds.
func (t tickRate) duration(n int64) time.Duration { return duration(n, t.scale) }

// duration returns the length of n ticks if there are scale ticks per microsecond, rounded
// up to whole nanoseconds. A negative n means throttle.Forever.
func duration(n, scale int64) time.Duration {
	if n < 0 {
		return throttle.Forever
	}
	return time.Duration(saturated.MulDivUp(n, 1000, scale))
}

// wholeMicros returns d rounded up to whole microseconds, the resolution of the server's
// clock: a claim that is retried a fraction of a microsecond too early would be rejected.
func wholeMicros(d time.Duration) time.Duration {
	if d > math.MaxInt64-1000 {
		return d
	}
	return (d + 999) / 1000 * 1000
}
