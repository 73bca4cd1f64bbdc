package throttle

import "time"

// Clock is a source of time. Where a Clock is a parameter or a field, nil means the system
// clock. The clocks of github.com/benbjohnson/clock and github.com/jonboule/clockwork
// implement it. Tests should prefer testing/synctest, which needs no Clock.
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
