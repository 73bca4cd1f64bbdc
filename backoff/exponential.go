package backoff

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

// Defaults of Exponential and Linear. Most SDKs of large APIs use a similar defaultBase: long
// enough for a short disturbance to pass, short enough that one retry is hardly noticed. With
// a defaultMax of half a minute, a server that has recovered is used again within that time.
const (
	defaultBase = 500 * time.Millisecond
	defaultMax  = 30 * time.Second
)

// Exponential is a Policy whose delays grow by a factor with each attempt:
//
//	c = min(Max, Base·Factor^(attempt-1))
//
// Jitter derives the delay from c. The zero Exponential is a good default: full jitter over
// 500 ms, 1 s, 2 s and so on up to 30 s.
//
// Invariant: no delay is negative or longer than Max, for any attempt number, any jitter and
// any values of the fields.
type Exponential struct {
	// Base is c after the first attempt. Zero and negative values mean 500 ms.
	Base time.Duration

	// Max is the maximum delay. Zero and negative values mean 30 s.
	Max time.Duration

	// Factor is the growth of c per attempt. Zero means 2, or 3 with Decorrelated. Other
	// values below 1 count as 1.
	Factor float64

	// Jitter is how the delay is drawn. Zero means Full.
	Jitter Jitter

	// Spread is the range of PlusMinus in both directions, as a fraction of c up to 1. Zero
	// means 0.5. A negative value means no jitter.
	Spread float64

	// Rand returns a uniform random number in [0, 1). It must be safe for concurrent use.
	// Nil means math/rand/v2.
	Rand func() float64
}

// Delay implements Policy.
func (e Exponential) Delay(attempt int, prev time.Duration) time.Duration {
	base, maxDelay := cmp.Or(max(e.Base, 0), defaultBase), cmp.Or(max(e.Max, 0), defaultMax)
	if e.Jitter == Decorrelated {
		return e.decorrelated(min(base, maxDelay), maxDelay, prev)
	}
	var c time.Duration // before jitter
	if e.Factor == 0 || e.Factor == 2 {
		c = double(base, maxDelay, attempt)
	} else {
		c = power(base, maxDelay, e.Factor, attempt)
	}
	switch e.Jitter {
	case Full:
		return random(uint64(c), e.Rand)
	case Equal:
		return c/2 + random(uint64(c-c/2), e.Rand)
	case PlusMinus:
		return plusMinus(c, maxDelay, e.Spread, e.Rand)
	}
	return c
}

// decorrelated returns a decorrelated delay after prev, from base to at most maxDelay.
func (e *Exponential) decorrelated(base, maxDelay, prev time.Duration) time.Duration {
	factor := max(cmp.Or(e.Factor, 3), 1)
	top := min(scale(max(prev, base), factor), maxDelay)
	return base + random(uint64(top-base)+1, e.Rand)
}

// Validate returns an error that describes the first field that is out of range, or nil. Delay
// replaces such values by values within the range.
func (e Exponential) Validate() error {
	if e.Factor != 0 && !(e.Factor >= 1 && e.Factor <= math.MaxFloat64) {
		return fmt.Errorf("backoff: Exponential: Factor is %v: it must be at least 1, or 0 for the default", e.Factor)
	}
	return validate("Exponential", e.Base, e.Max, e.Jitter, e.Spread)
}

// double returns base·2^(attempt-1), at most maxDelay. Both must be positive.
func double(base, maxDelay time.Duration, attempt int) time.Duration {
	n := uint(max(attempt, 1) - 1)
	if base > maxDelay>>n {
		return maxDelay
	}
	return base << n
}

// power returns base·factor^(attempt-1), at most maxDelay.
//
// It multiplies step by step and truncates each product to whole nanoseconds, so that delays
// are exactly those of cenkalti/backoff, which computes each from the previous one; a few steps
// are also cheaper than one math.Pow. After 64 steps, which only a factor close to 1 needs, the
// rest is one math.Pow.
func power(base, maxDelay time.Duration, factor float64, attempt int) time.Duration {
	const steps = 64
	if !(factor > 1) {
		return min(base, maxDelay)
	}
	n := max(attempt, 1) - 1
	c, last := float64(base), float64(maxDelay)/factor
	for range min(n, steps) {
		if c >= last {
			return maxDelay
		}
		c = math.Trunc(c * factor)
	}
	c *= math.Pow(factor, float64(max(n-steps, 0)))
	return min(toDuration(c), maxDelay)
}
