package replay

import (
	"errors"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// Limiters make what traces are played against. Where one returns nil there is no such
// limiter, and the scenario is left out.
type Limiters struct {
	TokenBucket    func(throttle.Limit, throttle.Clock) throttle.Limiter
	RefillBucket   func(throttle.Refill, throttle.Clock) throttle.Limiter
	LeakyBucket    func(throttle.Leak, throttle.Clock) throttle.Limiter
	TickQueue      func(throttle.Ticks, throttle.Clock) throttle.Limiter
	Nginx          func(throttle.LimitReq, throttle.Clock) throttle.Limiter
	FixedWindow    func(throttle.Quota, throttle.Clock) throttle.Limiter
	SlidingLog     func(throttle.Log, throttle.Clock) throttle.Limiter
	SlidingCounter func(throttle.Counter, throttle.Clock) throttle.Limiter
	SubWindows     func(throttle.Parts, throttle.Clock) throttle.Limiter
	Curve          func(warmup.Curve, throttle.Clock) throttle.Limiter
	Burst          func(warmup.Burst, throttle.Clock) throttle.Limiter

	// Unit is what waits of refusals are rounded up to; 0: nanoseconds.
	Unit time.Duration
}

// InMemory are the limiters of packages throttle and warmup.
var InMemory = Limiters{
	TokenBucket:    func(l throttle.Limit, c throttle.Clock) throttle.Limiter { return throttle.NewTokenBucket(l, c) },
	RefillBucket:   func(r throttle.Refill, c throttle.Clock) throttle.Limiter { return throttle.NewRefillBucket(r, c) },
	LeakyBucket:    func(l throttle.Leak, c throttle.Clock) throttle.Limiter { return throttle.NewLeakyBucket(l, c) },
	TickQueue:      func(t throttle.Ticks, c throttle.Clock) throttle.Limiter { return throttle.NewTickQueue(t, c) },
	Nginx:          func(l throttle.LimitReq, c throttle.Clock) throttle.Limiter { return throttle.NewNginx(l, c) },
	FixedWindow:    func(q throttle.Quota, c throttle.Clock) throttle.Limiter { return throttle.NewFixedWindow(q, c) },
	SlidingLog:     func(l throttle.Log, c throttle.Clock) throttle.Limiter { return throttle.NewSlidingLog(l, c) },
	SlidingCounter: func(k throttle.Counter, c throttle.Clock) throttle.Limiter { return throttle.NewSlidingCounter(k, c) },
	SubWindows:     func(p throttle.Parts, c throttle.Clock) throttle.Limiter { return throttle.NewSubWindows(p, c) },
	Curve:          func(w warmup.Curve, c throttle.Clock) throttle.Limiter { return warmup.New(w, c) },
	Burst:          func(b warmup.Burst, c throttle.Clock) throttle.Limiter { return warmup.NewBursty(b, c) },
}

// errLeftOut is for a scenario that needs a limiter which there is not.
var errLeftOut = errors.New("there is no such limiter")

// roundUp returns d as the wait of a refusal.
func (l *Limiters) roundUp(d time.Duration) time.Duration {
	if l.Unit <= 1 || d > throttle.Forever-l.Unit {
		return d
	}
	return (d + l.Unit - 1) / l.Unit * l.Unit
}
