package rules

import (
	"fmt"
	"math"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// newLimiter returns the local limiter of s, which must be valid, with a clock.
func newLimiter(s Spec, clk throttle.Clock) throttle.Limiter {
	return throttle.WithClock(unclocked(s), clk)
}

func unclocked(s Spec) throttle.Limiter {
	switch s := s.(type) {
	case throttle.Limit:
		return throttle.NewTokenBucket(s)
	case throttle.RefillBucketConfig:
		return throttle.NewRefillBucket(s)
	case throttle.LeakyBucketConfig:
		return throttle.NewLeakyBucket(s)
	case throttle.FixedWindowConfig:
		return throttle.NewFixedWindow(s)
	case throttle.SlidingLogConfig:
		return throttle.NewSlidingLog(s)
	case throttle.SlidingCounterConfig:
		return throttle.NewSlidingCounter(s)
	case throttle.NginxConfig:
		return throttle.NewNginx(s)
	case throttle.ConcurrencyConfig:
		return throttle.NewConcurrency(s)
	case warmup.Config:
		return warmup.New(s)
	}
	panic(fmt.Sprintf("rules: no limiter for a %T", s))
}

// resize changes the limit of l to s. The spec of l and s must be resizable. Units that were taken
// stay taken.
func resize(l throttle.Limiter, s Spec) error {
	switch l := l.(type) {
	case *throttle.Concurrency:
		return l.SetCount(s.(throttle.ConcurrencyConfig).Count)
	case throttle.Adjustable:
		return l.SetLimit(rateOf(s))
	}
	return fmt.Errorf("rules: a %T cannot change: make a new one", l)
}

// rateOf returns the part of s that can change while a limiter is in use.
func rateOf(s Spec) throttle.Limit {
	switch s := s.(type) {
	case throttle.Limit:
		return s
	case throttle.RefillBucketConfig:
		return s.Limit
	case throttle.LeakyBucketConfig:
		return s.Limit
	case throttle.FixedWindowConfig:
		return throttle.Limit{Name: s.Name, Count: s.Count, Per: s.Per}
	case throttle.SlidingLogConfig:
		return s.Limit
	case throttle.SlidingCounterConfig:
		return s.Limit
	case warmup.Config:
		return s.Limit
	}
	return throttle.Limit{}
}

// resizable reports whether the limiter of a can be changed to that of b while it is in use: both
// have the same algorithm, and the properties that cannot change are equal.
func resizable(a, b Spec) bool {
	switch b := b.(type) {
	case throttle.Limit:
		_, ok := a.(throttle.Limit)
		return ok
	case throttle.RefillBucketConfig:
		a, ok := a.(throttle.RefillBucketConfig)
		a.Limit = b.Limit
		return ok && a == b
	case throttle.LeakyBucketConfig:
		a, ok := a.(throttle.LeakyBucketConfig)
		a.Limit = b.Limit
		return ok && a == b
	case throttle.FixedWindowConfig:
		a, ok := a.(throttle.FixedWindowConfig)
		return ok && a.Align == b.Align && a.Zone.String() == b.Zone.String()
	case throttle.SlidingLogConfig:
		a, ok := a.(throttle.SlidingLogConfig)
		a.Limit = b.Limit
		return ok && a == b
	case throttle.SlidingCounterConfig:
		a, ok := a.(throttle.SlidingCounterConfig)
		a.Limit = b.Limit
		return ok && a == b
	case throttle.ConcurrencyConfig:
		a, ok := a.(throttle.ConcurrencyConfig)
		a.Name, a.Count = b.Name, b.Count
		return ok && a == b
	case warmup.Config:
		a, ok := a.(warmup.Config)
		a.Limit = b.Limit
		return ok && a == b
	}
	return a == nil && b == nil
}

// maxCapacity returns the maximum cost of a claim that l grants at any time.
func (l *Limit) maxCapacity() (n int64) {
	for _, p := range l.allSpecs() {
		n = max(n, specCapacity(p[0]), specCapacity(p[1]))
	}
	return n
}

// specCapacity returns the maximum cost of a claim that s grants.
func specCapacity(s Spec) int64 {
	switch s := s.(type) {
	case nil:
		return 0
	case throttle.FixedWindowConfig:
		return s.Count
	case throttle.ConcurrencyConfig:
		return s.Count
	case throttle.NginxConfig:
		return s.Burst + 1
	case warmup.Config:
		return math.MaxInt64 // later claims wait for what it grants
	case throttle.SlidingLogConfig, throttle.SlidingCounterConfig:
		return rateOf(s).Count
	}
	l := rateOf(s)
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Count
}
