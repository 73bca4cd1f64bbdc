package throttleredis

import (
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// Share returns a limiter in memory with the part of l's limit that one of several
// processes has, for each key: it is what a Fallback uses while Redis is away.
//
// The shares of all processes let through no more than the limit together. The rate is
// divided to the unit; of the burst each has a whole number, rounded down, but at least 1,
// without which nothing would pass. So where there are more processes than units in a burst,
// each can take one at once. The units of a window are divided as those of a burst are.
//
// maxKeys is how many keys have a limiter of their own, 0: 65,536; see keyed.Limiter for
// what others get. It panics if processes is not positive.
func (l *Limiter) Share(processes, maxKeys int) throttle.Limiter {
	if processes <= 0 {
		panic("throttleredis: Share: processes must be positive: it is how many share the limit")
	}
	n, clock := int64(processes), l.store.Clock
	return &keyed.Limiter{
		New:   func(string) throttle.Limiter { return l.limit.newShare(n, clock) },
		Max:   maxKeys,
		Clock: clock,
	}
}

// shareOf returns the n-th part of l, to the unit in n times Per. A part that takes longer
// to come back than a Limit may is made larger.
func shareOf(l throttle.Limit, n int64) throttle.Limit {
	part := l
	part.Name = policyName(l.Name, l.String())
	if part.Burst == 0 {
		part.Burst = l.Count
	}
	part.Burst = max(part.Burst/n, 1)
	if l.Count%n == 0 {
		part.Count /= n
	} else {
		part.Per = time.Duration(mulSat(int64(l.Per), n))
	}
	if n > 1 && (part.Per == math.MaxInt64 || part.Validate() != nil) {
		return shareOf(l, n/2)
	}
	return part
}

// evenShareOf returns the n-th part of a limit that has no burst besides Count: fewer
// units in the same time, or 1 in a longer one.
func evenShareOf(l throttle.Limit, n int64) throttle.Limit {
	l.Name, l.Burst = policyName(l.Name, l.String()), 0
	if n > l.Count {
		l.Per = time.Duration(max(min(mulSat(int64(l.Per), (n-1)/l.Count+1), maxSharePer), int64(l.Per)))
	}
	l.Count = max(l.Count/n, 1)
	return l
}

// evenRateOf is shareOf for a limit that has no burst.
func evenRateOf(l throttle.Limit, n int64) throttle.Limit {
	part := shareOf(l, n)
	part.Burst = 0
	return part
}

// maxSharePer is how long 1 unit may take to come back: a year.
const maxSharePer = int64(365 * 24 * time.Hour)
