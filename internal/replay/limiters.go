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
	TokenBucket: func(l throttle.Limit, c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewTokenBucket(l), c)
	},
	RefillBucket: func(r throttle.RefillBucketConfig, c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewRefillBucket(r), c)
	},
	LeakyBucket: func(l throttle.LeakyBucketConfig, c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewLeakyBucket(l), c)
	},
	TickQueue: func(t throttle.TickQueueConfig, c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewTickQueue(t), c)
	},
	Nginx: func(l throttle.NginxConfig, c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewNginx(l), c)
	},
	FixedWindow: func(q throttle.FixedWindowConfig, c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewFixedWindow(q), c)
	},
	SlidingLog: func(l throttle.SlidingLogConfig, c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewSlidingLog(l), c)
	},
	SlidingCounter: func(k throttle.SlidingCounterConfig, c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(throttle.NewSlidingCounter(k), c)
	},
	WarmUp: func(w warmup.Config, c throttle.Clock) throttle.Limiter { return throttle.WithClock(warmup.New(w), c) },
	Bursty: func(b warmup.BurstyConfig, c throttle.Clock) throttle.Limiter {
		return throttle.WithClock(warmup.NewBursty(b), c)
	},
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
