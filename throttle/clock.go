package throttle

import "time"

// Clock is what the package needs to know of time. Nil means the system clock
// wherever a Clock is asked for. The clocks of github.com/benbjohnson/clock and
// github.com/jonboulle/clockwork satisfy it as they are; in tests of your own
// prefer testing/synctest, which needs no clock at all.
type Clock interface {
	Now() time.Time
	After(d time.Duration) <-chan time.Time
}

// ClockOr returns c, or the system clock if c is nil.
func ClockOr(c Clock) Clock {
	if c == nil {
		return systemClock{}
	}
	return c
}

type systemClock struct{}

func (systemClock) Now() time.Time                         { return time.Now() }
func (systemClock) After(d time.Duration) <-chan time.Time { return time.After(d) }
