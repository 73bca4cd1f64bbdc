package backoff

import (
	"fmt"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// Linear is a Policy whose delays grow by the same amount with each attempt:
//
//	c = min(Max, Base·attempt)
//
// of which Jitter makes the delay. It suits a server whose recovery takes a known
// time; where that is unknown, Exponential finds it with fewer requests.
type Linear struct {
	Base   time.Duration  // c after the first attempt, and growth per attempt; 0 or below: DefaultBase
	Max    time.Duration  // no delay is longer; 0 or below: DefaultMax
	Jitter Jitter         // how the delay is drawn; 0: Full. Decorrelated counts as Full
	Spread float64        // of PlusMinus, a fraction up to 1 of c either way, below 0 is none; 0: 0.5
	Rand   func() float64 // uniform in [0, 1), safe for concurrent use; nil: math/rand/v2
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
		return plusMinus(c, orDefault(l.Max, DefaultMax), l.Spread, l.Rand)
	}
	return c
}

// ceiling returns c.
func (l Linear) ceiling(attempt int) time.Duration {
	c := ticks.Mul(int64(orDefault(l.Base, DefaultBase)), int64(max(attempt, 1)))
	return min(time.Duration(c), orDefault(l.Max, DefaultMax))
}

// Validate returns an error that says what to change if a field is out of its
// range. Delay works with any fields, but then not with those that were written.
func (l Linear) Validate() error {
	if l.Jitter == Decorrelated {
		return fmt.Errorf("backoff: Linear: Jitter is %v: only Exponential has it", l.Jitter)
	}
	return validate("Linear", l.Base, l.Max, l.Jitter, l.Spread)
}
