package throttle

import (
	"cmp"
	"fmt"
	"reflect"
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
// SetClock(Clock) of l, which all limiters of this module have that read a clock, and which those
// that are composed of others pass on. A type that embeds a Limiter must define SetClock itself:
// WithClock panics if l, or a limiter of which l is composed, embeds one that has SetClock but does
// not have it itself. It also panics if l has no such method.
func WithClock[L Limiter](l L, c Clock) L {
	s, ok := Limiter(l).(clockSetter)
	if !ok {
		panic(missingSetClock(l))
	}
	s.SetClock(c)
	return l
}

func missingSetClock(l Limiter) string {
	return fmt.Sprintf("throttle: WithClock: a %T has no method SetClock(throttle.Clock)", l)
}

type clockSetter interface{ SetClock(c Clock) }

// setClock sets the clock of those limiters of ls that read one. It panics if one of ls hides the
// SetClock of a limiter that it embeds.
func setClock(c Clock, ls ...Limiter) {
	for _, l := range ls {
		if s, ok := l.(clockSetter); ok {
			s.SetClock(c)
		} else if embedsClock(reflect.ValueOf(l)) {
			panic(missingSetClock(l))
		}
	}
}

// embedsClock reports whether v is, points to, or embeds a limiter that reads a clock.
func embedsClock(v reflect.Value) bool {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.IsValid() && v.Type().Implements(reflect.TypeFor[clockSetter]()) {
		return true
	}
	v = reflect.Indirect(v)
	for i := 0; v.Kind() == reflect.Struct && i < v.NumField(); i++ {
		if v.Type().Field(i).Anonymous && embedsClock(v.Field(i)) {
			return true
		}
	}
	return false
}

// ClockOr returns c, or the system clock if c is nil.
func ClockOr(c Clock) Clock { return cmp.Or(c, Clock(systemClock{})) }

type systemClock struct{}

func (systemClock) Now() time.Time                         { return time.Now() }
func (systemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }
