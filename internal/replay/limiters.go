package replay

import (
	"errors"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// Limiters holds constructors of the limiters that traces are replayed with. If one returns
// nil, there is no such limiter and the scenario is skipped.
type Limiters struct {
	TokenBucket    func(throttle.Limit, throttle.Clock) throttle.Limiter
	RefillBucket   func(throttle.RefillBucketConfig, throttle.Clock) throttle.Limiter
	LeakyBucket    func(throttle.LeakyBucketConfig, throttle.Clock) throttle.Limiter
	TickQueue      func(throttle.TickQueueConfig, throttle.Clock) throttle.Limiter
	Nginx          func(throttle.NginxConfig, throttle.Clock) throttle.Limiter
	FixedWindow    func(throttle.FixedWindowConfig, throttle.Clock) throttle.Limiter
	SlidingLog     func(throttle.SlidingLogConfig, throttle.Clock) throttle.Limiter
	SlidingCounter func(throttle.SlidingCounterConfig, throttle.Clock) throttle.Limiter
	WarmUp         func(warmup.Config, throttle.Clock) throttle.Limiter
	Bursty         func(warmup.BurstyConfig, throttle.Clock) throttle.Limiter

	// Unit is the unit to which waits of rejections are rounded up. Zero means nanoseconds.
	Unit time.Duration
}

// InMemory holds the limiters of packages throttle and warmup.
var InMemory = Limiters{
	TokenBucket:    withClock(throttle.NewTokenBucket),
	RefillBucket:   withClock(throttle.NewRefillBucket),
	LeakyBucket:    withClock(throttle.NewLeakyBucket),
	TickQueue:      withClock(throttle.NewTickQueue),
	Nginx:          withClock(throttle.NewNginx),
	FixedWindow:    withClock(throttle.NewFixedWindow),
	SlidingLog:     withClock(throttle.NewSlidingLog),
	SlidingCounter: withClock(throttle.NewSlidingCounter),
	WarmUp:         withClock(warmup.New),
	Bursty:         withClock(warmup.NewBursty),
}

// withClock returns a function that makes a limiter with newLimiter and sets its clock.
func withClock[C any, L throttle.Limiter](newLimiter func(C) L) func(C, throttle.Clock) throttle.Limiter {
	return func(config C, clock throttle.Clock) throttle.Limiter {
		return throttle.WithClock(newLimiter(config), clock)
	}
}

// errNoLimiter is returned for a scenario whose limiter is not available.
var errNoLimiter = errors.New("no such limiter")

// roundUp returns d rounded up as the wait of a rejection.
func (l *Limiters) roundUp(d time.Duration) time.Duration {
	if l.Unit <= 1 || d > throttle.Forever-l.Unit {
		return d
	}
	return (d + l.Unit - 1) / l.Unit * l.Unit
}
