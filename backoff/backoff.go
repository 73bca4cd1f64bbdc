package backoff

import (
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// Stop, as a delay, says that there are to be no more retries. Whoever takes it
// for a number gives up too, because no deadline is as far away.
const Stop time.Duration = math.MaxInt64

// A Policy says how long to wait before trying again.
//
// Its method may be called by many goroutines at once. The policies of this
// package are values without state, except where a [Stateful] says otherwise.
type Policy interface {
	// Delay returns the wait between attempt and the next one: never negative,
	// and Stop if there should be no next one. Attempts count from 1, and
	// anything below counts as 1. prev is what Delay returned before this one,
	// 0 after the first attempt.
	Delay(attempt int, prev time.Duration) time.Duration
}

// A Stateful is a Policy that keeps state, so that each call, with all its retries,
// needs one of its own.
type Stateful interface {
	Policy

	// ForCall returns a new Policy for one call. It need not be safe for use by
	// several goroutines.
	ForCall() Policy
}

// ForCall returns the Policy to use for one call with all its retries: one of its
// own if p is a Stateful, else p itself.
func ForCall(p Policy) Policy {
	if s, ok := p.(Stateful); ok {
		return s.ForCall()
	}
	return p
}

// Constant is a Policy that always waits the same time. Below 0 it counts as 0.
//
// For a constant with jitter, use Exponential with a Factor of 1.
type Constant time.Duration

// Delay implements Policy.
func (c Constant) Delay(int, time.Duration) time.Duration { return max(time.Duration(c), 0) }

// orDefault returns d, or otherwise if d is not positive.
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
