package rules

import (
	"cmp"
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

// resize changes the limit of l to that of s, with which the spec of l must be resizable. Units that were taken stay taken.
func resize(l throttle.Limiter, s Spec) error {
	adjustable, ok := l.(throttle.Adjustable)
	if !ok {
		return fmt.Errorf("rules: a %T cannot change: make a new one", l)
	}
	return adjustable.SetLimit(rateOf(s))
}

// resizable reports whether the limiter of a can be changed to that of b while it is in use: both
// have the same algorithm, and the properties that cannot change are equal.
func resizable(a, b Spec) bool {
	restA, _, ok := split(a)
	restB, _, _ := split(b)
	return restA == restB && (ok || a == nil)
}

// rateOf returns the part of s that can change while a limiter is in use.
func rateOf(s Spec) throttle.Limit {
	_, limit, _ := split(s)
	return limit
}

// split returns the part of s that can change while a limiter is in use, and s without it. ok is false if there is none.
func split(s Spec) (rest Spec, limit throttle.Limit, ok bool) {
	switch s := s.(type) {
	case throttle.Limit:
		return throttle.Limit{}, s, true
	case throttle.RefillBucketConfig:
		limit, s.Limit = s.Limit, limit
		return s, limit, true
	case throttle.LeakyBucketConfig:
		limit, s.Limit = s.Limit, limit
		return s, limit, true
	case throttle.FixedWindowConfig:
		return throttle.FixedWindowConfig{Align: s.Align, Name: s.Zone.String()}, throttle.Limit{Name: s.Name, Count: s.Count, Per: s.Per}, true
	case throttle.SlidingLogConfig:
		limit, s.Limit = s.Limit, limit
		return s, limit, true
	case throttle.SlidingCounterConfig:
		limit, s.Limit = s.Limit, limit
		return s, limit, true
	case throttle.ConcurrencyConfig:
		return throttle.ConcurrencyConfig{MaxAge: s.MaxAge}, throttle.Limit{Name: s.Name, Count: s.Count}, true
	case warmup.Config:
		limit, s.Limit = s.Limit, limit
		return s, limit, true
	}
	return s, limit, false
}

// maxCapacity returns the maximum cost of a claim that l grants at any time.
func (l *Limit) maxCapacity() (n int64) {
	for _, p := range l.allSpecs() {
		n = max(n, specCapacity(p[0]), specCapacity(p[1]))
	}
	return n
}

func specCapacity(s Spec) int64 {
	switch s := s.(type) {
	case nil:
		return 0
	case throttle.NginxConfig:
		return s.Burst + 1
	case warmup.Config:
		return math.MaxInt64 // later claims wait for what it grants
	}
	l := rateOf(s)
	return cmp.Or(l.Burst, l.Count)
}
