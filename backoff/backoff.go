package backoff

import (
	"math"
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

// orDefault returns d, or def if d is not positive.
func orDefault(d, def time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return def
}

// scale returns d*f rounded down, saturated.
func scale(d time.Duration, f float64) time.Duration { return toDuration(float64(d) * f) }

// toDuration returns ns nanoseconds rounded down, saturated.
func toDuration(ns float64) time.Duration { return time.Duration(ticks.Int64(ns)) }
