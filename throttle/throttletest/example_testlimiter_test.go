package throttletest_test

import (
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/throttletest"
)

// TestLimiter is called from the test of a limiter. The Spec states its bound. newLimiter stands
// for the constructor of a custom limiter; each call returns an unused one with the given
// clock.
func ExampleTestLimiter() {
	newLimiter := func(clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewTokenBucket(throttle.PerSecond(10)), clk)
	}
	testMyLimiter := func(t *testing.T) {
		throttletest.TestLimiter(t, newLimiter, throttletest.Spec{Limit: throttle.PerSecond(10)})
	}
	_ = testMyLimiter // its parameter and body are those of a test function
}

// A limiter that counts in windows grants up to twice its count within any span of one window,
// so its Spec states a Bound.
func ExampleSpec_bound() {
	newLimiter := func(clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 10, Per: time.Second}), clk)
	}
	testMyWindow := func(t *testing.T) {
		throttletest.TestLimiter(t, newLimiter, throttletest.Spec{
			Bound: func(w time.Duration) int64 { return 10 * (int64(w/time.Second) + 2) },
		})
	}
	_ = testMyWindow
}

// A wrapper around other limiters must return their Decisions unchanged and forward feedback.
// With Wrap, TestLimiter checks that too.
func ExampleSpec_wrap() {
	wrap := func(l throttle.Limiter) throttle.Limiter {
		return throttle.NewSoftLimit(throttle.SoftLimitConfig{Soft: l, Hard: throttle.AllowAll})
	}
	testMyWrapper := func(t *testing.T) {
		throttletest.TestLimiter(t, func(clk throttle.Clock) throttle.Limiter {
			return wrap(throttle.WithClock(throttle.NewTokenBucket(throttle.PerSecond(10)), clk))
		}, throttletest.Spec{Limit: throttle.PerSecond(10), Wrap: wrap})
	}
	_ = testMyWrapper
}
