package throttleredis

import (
	"cmp"
	"math"
	"time"

	saturated "github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// Share returns a limiter in memory that has, for each key, the part of the limit that one
// of several processes may use. A Fallback uses it while Redis is unreachable.
//
// The shares of all processes together grant no more than the limit. The rate is divided
// exactly. The burst is divided and rounded down to whole units, but is at least 1, because
// otherwise no claim would be granted; if there are more processes than units in a burst,
// each process can therefore take one unit at a time. The units of a window are divided
// like a burst.
//
// maxKeys is the maximum number of keys with separate limiters; see keyed.Limiter for what
// happens to further keys. Zero means 65,536. Share panics if processes is not positive.
func (l *Limiter) Share(processes, maxKeys int) throttle.Limiter {
	if processes <= 0 {
		panic("throttleredis: Share: processes must be positive: it is how many share the limit")
	}
	n, clock := int64(processes), l.store.Clock
	return &keyed.Limiter{
		New:   func(string) throttle.Limiter { return throttle.WithClock(l.limit.newShare(n), clock) },
		Max:   maxKeys,
		Clock: clock,
	}
}

// shareOf returns the n-th part of l, exactly in n times Per. If Per becomes longer than a
// Limit allows, the part is made larger.
func shareOf(l throttle.Limit, n int64) throttle.Limit {
	part := l
	part.Name = cmp.Or(l.Name, l.String())
	part.Burst = max(cmp.Or(l.Burst, l.Count)/n, 1)
	if l.Count%n == 0 {
		part.Count /= n
	} else {
		part.Per = time.Duration(saturated.Mul(int64(l.Per), n))
	}
	if n > 1 && (part.Per == math.MaxInt64 || part.Validate() != nil) {
		return shareOf(l, n/2)
	}
	return part
}

// evenShareOf returns the n-th part of a limit that has no burst besides Count: fewer units
// in the same time, or 1 unit in a longer time.
func evenShareOf(l throttle.Limit, n int64) throttle.Limit {
	l.Name, l.Burst = cmp.Or(l.Name, l.String()), 0
	if n > l.Count {
		l.Per = time.Duration(max(min(saturated.Mul(int64(l.Per), (n-1)/l.Count+1), maxSharePer), int64(l.Per)))
	}
	l.Count = max(l.Count/n, 1)
	return l
}

// evenRateOf returns the n-th part of a limit that has no burst.
func evenRateOf(l throttle.Limit, n int64) throttle.Limit {
	part := shareOf(l, n)
	part.Burst = 0
	return part
}

// maxSharePer is the maximum time in which 1 unit is restored: a year.
const maxSharePer = int64(365 * 24 * time.Hour)
