package rules

import (
	"fmt"
	"math"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// newLimiter makes the local limiter of s, which has been validated.
func newLimiter(s Spec, clk throttle.Clock) throttle.Limiter {
	switch s := s.(type) {
	case throttle.Limit:
		return throttle.NewTokenBucket(s, clk)
	case throttle.Refill:
		return throttle.NewRefillBucket(s, clk)
	case throttle.Leak:
		return throttle.NewLeakyBucket(s, clk)
	case throttle.Quota:
		return throttle.NewFixedWindow(s, clk)
	case throttle.Log:
		return throttle.NewSlidingLog(s, clk)
	case throttle.Counter:
		return throttle.NewSlidingCounter(s, clk)
	case throttle.Parts:
		return throttle.NewSubWindows(s, clk)
	case throttle.LimitReq:
		return throttle.NewNginx(s, clk)
	case throttle.Capacity:
		return throttle.NewInFlight(s, clk)
	case warmup.Curve:
		return warmup.New(s, clk)
	}
	panic(fmt.Sprintf("rules: no limiter for a %T", s))
}

// resize makes l, which newLimiter made of a spec that resizable said yes to, what s
// says. Units that are taken stay taken.
func resize(l throttle.Limiter, s Spec) error {
	switch l := l.(type) {
	case *throttle.FixedWindow:
		return l.SetQuota(s.(throttle.Quota))
	case interface{ SetLimit(throttle.Limit) error }:
		return l.SetLimit(rateOf(s))
	}
	return fmt.Errorf("rules: a %T cannot change: make a new one", l)
}

// rateOf returns the part of s that can change while a limiter is in use.
func rateOf(s Spec) throttle.Limit {
	switch s := s.(type) {
	case throttle.Limit:
		return s
	case throttle.Refill:
		return s.Limit
	case throttle.Leak:
		return s.Limit
	case throttle.Log:
		return s.Limit
	case throttle.Counter:
		return s.Limit
	case throttle.Parts:
		return s.Limit
	case warmup.Curve:
		return s.Limit
	}
	return throttle.Limit{}
}

// resizable reports whether the limiter of a can become that of b: both have the
// same algorithm, and what cannot change while it is in use is the same.
func resizable(a, b Spec) bool {
	switch b := b.(type) {
	case throttle.Limit:
		_, ok := a.(throttle.Limit)
		return ok
	case throttle.Refill:
		a, ok := a.(throttle.Refill)
		a.Limit = b.Limit
		return ok && a == b
	case throttle.Leak:
		a, ok := a.(throttle.Leak)
		a.Limit = b.Limit
		return ok && a == b
	case throttle.Quota:
		a, ok := a.(throttle.Quota)
		return ok && a.Anchor == b.Anchor
	case throttle.Log:
		a, ok := a.(throttle.Log)
		a.Limit = b.Limit
		return ok && a == b
	case throttle.Counter:
		a, ok := a.(throttle.Counter)
		a.Limit = b.Limit
		return ok && a == b
	case throttle.Parts:
		a, ok := a.(throttle.Parts)
		a.Limit = b.Limit
		return ok && a == b
	case warmup.Curve:
		a, ok := a.(warmup.Curve)
		a.Limit = b.Limit
		return ok && a == b
	}
	return a == nil && b == nil
}

// most returns the most units that l grants at once at any time.
func (l *Limit) most() (n int64) {
	for _, p := range l.phases() {
		n = max(n, capacity(p[0]), capacity(p[1]))
	}
	return n
}

// capacity returns the most units that s grants at once.
func capacity(s Spec) int64 {
	switch s := s.(type) {
	case nil:
		return 0
	case throttle.Quota:
		return s.Count
	case throttle.Capacity:
		return s.Count
	case throttle.LimitReq:
		return s.Burst + 1
	case warmup.Curve:
		return math.MaxInt64 // what it grants pays later
	case throttle.Log, throttle.Counter, throttle.Parts:
		return rateOf(s).Count
	}
	l := rateOf(s)
	if l.Burst > 0 {
		return l.Burst
	}
	return l.Count
}
