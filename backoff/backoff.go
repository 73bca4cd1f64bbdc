package backoff

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// Stop is a delay that means that there should be no more retries. It is the maximum duration,
// so code that treats it as a plain delay exceeds every deadline and gives up as well.
const Stop time.Duration = math.MaxInt64

// A Policy computes how long to wait before the next attempt.
//
// Delay may be called by several goroutines at the same time. The policies of this package are
// values without state, except those that implement [Stateful].
type Policy interface {
	// Delay returns the wait between attempt and the next attempt. It is never negative. Stop
	// means that there should be no next attempt. Attempts are counted from 1; smaller values
	// count as 1. prev is the previous delay, or 0 after the first attempt.
	Delay(attempt int, prev time.Duration) time.Duration
}

// A Stateful is a Policy that keeps state, so that each call needs a Policy of its own for all
// of its retries.
type Stateful interface {
	Policy

	// ForCall returns a new Policy for one call. The Policy need not be safe for use by
	// several goroutines.
	ForCall() Policy
}

// ForCall returns the Policy to use for all retries of one call: a new one if p is a Stateful,
// else p itself.
func ForCall(p Policy) Policy {
	if s, ok := p.(Stateful); ok {
		return s.ForCall()
	}
	return p
}

// Constant is a Policy that always returns the same delay. A negative Constant counts as 0.
//
// For a constant delay with jitter, use Exponential with a Factor of 1.
type Constant time.Duration

// Delay implements Policy.
func (c Constant) Delay(int, time.Duration) time.Duration { return max(time.Duration(c), 0) }

// scale returns d*f rounded down, saturated.
func scale(d time.Duration, f float64) time.Duration { return toDuration(float64(d) * f) }

// toDuration returns ns nanoseconds rounded down, saturated.
func toDuration(ns float64) time.Duration { return time.Duration(ticks.Int64(ns)) }

// Jitter is a method of spreading the delays of clients that fail at the same time. The package
// documentation describes when to use which.
type Jitter uint8

const (
	Full         Jitter = iota // uniform between 0 and the computed delay
	None                       // the computed delay itself
	Equal                      // uniform between half of the computed delay and all of it
	Decorrelated               // uniform between the base and a multiple of the previous delay
	PlusMinus                  // uniform around the computed delay, by a fraction of it
)

const defaultSpread = 0.5 // default of Spread for PlusMinus, as in cenkalti/backoff

// String returns the name of j in lower case.
func (j Jitter) String() string {
	switch j {
	case Full:
		return "full"
	case None:
		return "none"
	case Equal:
		return "equal"
	case Decorrelated:
		return "decorrelated"
	case PlusMinus:
		return "plusminus"
	}
	return "jitter " + strconv.Itoa(int(j))
}

// plusMinus returns a random delay in c ± spread·c. If the upper bound would exceed maxDelay, c
// is lowered: limiting the delay itself would set many delays to exactly maxDelay.
func plusMinus(c, maxDelay time.Duration, spread float64, rnd func() float64) time.Duration {
	switch {
	case spread == 0:
		spread = defaultSpread
	case spread > 0:
		spread = min(spread, 1)
	default: // also if it is not a number
		spread = 0
	}
	c = min(c, toDuration(float64(maxDelay)/(1+spread)))
	by := min(scale(c, spread), c, maxDelay-c)
	return c - by + random(uint64(2*by)+1, rnd)
}

// random returns a uniform random number from 0 to n-1. n must not be 0. A nil rnd means
// math/rand/v2.
//
// The upper half of the product maps 64 random bits to n numbers with one multiplication.
// Unlike rand.Uint64N, which repeats some draws to be exactly uniform, it returns some numbers
// slightly more often than others: the relative difference is n/2^64, which for one minute is
// 1 in 300 million.
func random(n uint64, rnd func() float64) time.Duration {
	if rnd != nil {
		return fraction(n, rnd())
	}
	d, _ := bits.Mul64(rand.Uint64(), n)
	return time.Duration(d)
}

// fraction returns u*n rounded down. A u outside of [0, 1) counts as the nearest value inside.
func fraction(n uint64, u float64) time.Duration {
	if !(u > 0) { // also if it is not a number
		return 0
	}
	return time.Duration(min(uint64(min(u, 1)*float64(n)), n-1))
}

// validate checks the fields that the policies with jitter have in common.
func validate(policy string, base, maxDelay time.Duration, j Jitter, spread float64) error {
	switch {
	case base < 0:
		return fmt.Errorf("backoff: %s: Base is %v: it must be positive, or 0 for the default", policy, base)
	case maxDelay < 0:
		return fmt.Errorf("backoff: %s: Max is %v: it must be positive, or 0 for the default", policy, maxDelay)
	case maxDelay > 0 && base > maxDelay:
		return fmt.Errorf("backoff: %s: Base %v is above Max %v: lower Base or raise Max", policy, base, maxDelay)
	case j > PlusMinus:
		return fmt.Errorf("backoff: %s: Jitter is %d: use one of the constants of this package", policy, j)
	case !(spread >= 0 && spread <= 1):
		return fmt.Errorf("backoff: %s: Spread is %v: it must be between 0 and 1", policy, spread)
	}
	return nil
}
