package backoff

import (
	"fmt"
	"math"
	"time"
)

// Defaults of Exponential and Linear. Base is what most SDKs of busy APIs use:
// long enough for a hiccup to pass, short enough that nobody notices one retry.
// With Max half a minute, a server that is back is asked again within that time.
const (
	DefaultBase = 500 * time.Millisecond
	DefaultMax  = 30 * time.Second
)

// Exponential is a Policy whose delays grow by a factor with each attempt:
//
//	c = min(Max, Base·Factor^(attempt-1))
//
// of which Jitter makes the delay. The zero Exponential is a good default: full
// jitter over 500 ms, 1 s, 2 s and so on up to 30 s.
//
// Invariant: no delay is negative or above Max, at any attempt number, with any
// jitter, for any value of any field.
type Exponential struct {
	Base   time.Duration  // c after the first attempt; 0 or below: DefaultBase
	Max    time.Duration  // no delay is longer; 0 or below: DefaultMax
	Factor float64        // growth per attempt, below 1 counts as 1; 0: 2, or 3 with Decorrelated
	Jitter Jitter         // how the delay is drawn; 0: Full
	Spread float64        // of PlusMinus, a fraction up to 1 of c either way, below 0 is none; 0: 0.5
	Rand   func() float64 // uniform in [0, 1), safe for concurrent use; nil: math/rand/v2
}

// Delay implements Policy. It is a step to be inlined: what follows takes a pointer
// because six words to copy would cost half as much as the draw.
func (e Exponential) Delay(attempt int, prev time.Duration) time.Duration {
	return e.delay(attempt, prev)
}

// delay puts the defaults first and draws for them as directly as can be.
func (e *Exponential) delay(attempt int, prev time.Duration) time.Duration {
	if e.Jitter == Full && e.Factor == 0 && e.Rand == nil {
		return uniform(uint64(double(orDefault(e.Base, DefaultBase), orDefault(e.Max, DefaultMax), attempt)))
	}
	c := e.ceiling(attempt)
	switch e.Jitter {
	case Full:
		return random(uint64(c), e.Rand)
	case Equal:
		return c/2 + random(uint64(c-c/2), e.Rand)
	case Decorrelated:
		base, top := e.decorrelated(prev)
		return base + random(uint64(top-base)+1, e.Rand)
	case PlusMinus:
		return plusMinus(c, orDefault(e.Max, DefaultMax), e.Spread, e.Rand)
	}
	return c
}

// ceiling returns c.
func (e *Exponential) ceiling(attempt int) time.Duration {
	base, maxDelay := orDefault(e.Base, DefaultBase), orDefault(e.Max, DefaultMax)
	if e.Factor == 0 || e.Factor == 2 {
		return double(base, maxDelay, attempt)
	}
	return power(base, maxDelay, e.Factor, attempt)
}

// decorrelated returns the range of a delay after prev.
func (e *Exponential) decorrelated(prev time.Duration) (base, top time.Duration) {
	maxDelay := orDefault(e.Max, DefaultMax)
	base = min(orDefault(e.Base, DefaultBase), maxDelay)
	factor := e.Factor
	if factor == 0 {
		factor = 3
	}
	return base, min(scale(max(prev, base), max(factor, 1)), maxDelay)
}

// Validate returns an error that says what to change if a field is out of its
// range. Delay works with any fields, but then not with those that were written.
func (e Exponential) Validate() error {
	if e.Factor != 0 && !(e.Factor >= 1 && e.Factor <= math.MaxFloat64) {
		return fmt.Errorf("backoff: Exponential: Factor is %v: it must be at least 1, or 0 for the default", e.Factor)
	}
	return validate("Exponential", e.Base, e.Max, e.Jitter, e.Spread)
}

// double returns base·2^(attempt-1), at most most.
func double(base, maxDelay time.Duration, attempt int) time.Duration {
	n := uint(max(attempt, 1) - 1)
	if n >= 63 || base > maxDelay>>n {
		return maxDelay
	}
	return base << n
}

// power returns base·factor^(attempt-1), at most most.
//
// Step by step, each cut to whole nanoseconds, these are to the nanosecond the
// delays of cenkalti/backoff, which keeps the last one; and few steps are cheaper
// than one math.Pow. Where a factor close to 1 needs many, the rest is one power.
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
	if n > steps {
		c *= math.Pow(factor, float64(n-steps))
	}
	return min(toDuration(c), maxDelay)
}
