package backoff

import (
	"cmp"
	"fmt"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// Linear is a Policy whose delays grow by the same amount with each attempt:
//
//	c = min(Max, Base·attempt)
//
// Jitter derives the delay from c. Linear suits a server whose recovery takes a known time. If
// that time is unknown, Exponential needs fewer requests to find it.
type Linear struct {
	// Base is c after the first attempt, and the growth of c per attempt. Zero and negative
	// values mean 500 ms.
	Base time.Duration

	// Max is the maximum delay. Zero and negative values mean 30 s.
	Max time.Duration

	// Jitter is how the delay is drawn. Zero means Full. Decorrelated counts as Full.
	Jitter Jitter

	// Spread is the range of PlusMinus in both directions, as a fraction of c up to 1. Zero
	// means 0.5. A negative value means no jitter.
	Spread float64

	// Rand returns a uniform random number in [0, 1). It must be safe for concurrent use.
	// Nil means math/rand/v2.
	Rand func() float64
}

// Delay implements Policy.
func (l Linear) Delay(attempt int, _ time.Duration) time.Duration {
	c := l.ceiling(attempt)
	switch l.Jitter {
	case Full, Decorrelated:
		return random(uint64(c), l.Rand)
	case Equal:
		return c/2 + random(uint64(c-c/2), l.Rand)
	case PlusMinus:
		return plusMinus(c, cmp.Or(max(l.Max, 0), defaultMax), l.Spread, l.Rand)
	}
	return c
}

// ceiling returns c, the delay before jitter.
func (l Linear) ceiling(attempt int) time.Duration {
	c := ticks.Mul(int64(cmp.Or(max(l.Base, 0), defaultBase)), int64(max(attempt, 1)))
	return min(time.Duration(c), cmp.Or(max(l.Max, 0), defaultMax))
}

// Validate returns an error that describes the first field that is out of range, or nil. Delay
// replaces such values by values within the range.
func (l Linear) Validate() error {
	if l.Jitter == Decorrelated {
		return fmt.Errorf("backoff: Linear: Jitter is %v: only Exponential has it", l.Jitter)
	}
	return validate("Linear", l.Base, l.Max, l.Jitter, l.Spread)
}
