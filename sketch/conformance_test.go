package sketch_test

import (
	"testing"
	"time"

	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/throttletest"
)

// TestConformance runs the conformance tests of throttletest. A sketch may overestimate, and the
// first unit of a client cannot be returned, so the limiter is Approximate. Its bound is still
// that of throttle.NewSlidingCounter: a span touches up to two windows more than its length in
// windows.
func TestConformance(t *testing.T) {
	histories := 0 // the default
	if testing.Short() {
		histories = 60
	}
	bound := func(w time.Duration) int64 { return 10 * int64(w/time.Second+2) }
	for name, p := range map[string]sketch.LimiterConfig{
		"as planned":   {Clients: 1000, Seed: 1},
		"random seeds": {Clients: 10},
	} {
		p.Limit = throttle.PerSecond(10)
		t.Run(name, func(t *testing.T) {
			throttletest.TestLimiter(t, func(clk throttle.Clock) throttle.Limiter { return throttle.WithClock(sketch.NewLimiter(p), clk) },
				throttletest.Spec{Bound: bound, Approximate: true, Histories: histories})
		})
	}
}
