package throttle

import (
	"cmp"
	"fmt"
	"time"
)

// Clock is a source of time. Where a Clock is a field, nil means the system clock. The
// clocks of github.com/benbjohnson/clock and github.com/jonboulle/clockwork implement it.
// Tests should prefer testing/synctest, which needs no Clock.
type Clock interface {
	Now() time.Time
	After(d time.Duration) <-chan time.Time
}

// WithClock makes l read c where a caller gives no time in Claim.Now or Feedback.Now, and
// returns l. The limiter then counts as created at c.Now(). A nil clock means the system
// clock. WithClock must be called before the first use of l. It calls the method
// SetClock(Clock) of l, which all limiters of this module have that read a clock. It panics
// if l has no such method.
func WithClock[L Limiter](l L, c Clock) L {
	s, ok := Limiter(l).(clockSetter)
	if !ok {
		panic(fmt.Sprintf("throttle: WithClock: a %T has no method SetClock(throttle.Clock)", l))
	}
	s.SetClock(c)
	return l
}

type clockSetter interface{ SetClock(c Clock) }

// setClock sets the clock of those limiters of ls that read one.
func setClock(c Clock, ls ...Limiter) {
	for _, l := range ls {
		if s, ok := l.(clockSetter); ok {
			s.SetClock(c)
		}
	}
}

// ClockOr returns c, or the system clock if c is nil.
func ClockOr(c Clock) Clock { return cmp.Or(c, Clock(systemClock{})) }

type systemClock struct{}

func (systemClock) Now() time.Time                         { return time.Now() }
func (systemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }
