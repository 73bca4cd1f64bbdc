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

// A timeline counts nanoseconds from its start, so that limiters can do
// arithmetic on int64. Readings before the start are negative, and what is
// further away than an int64 can say saturates.
type timeline struct {
	clock Clock // nil: the system clock
	start time.Time
}

func newTimeline(c Clock) timeline {
	return timeline{clock: c, start: ClockOr(c).Now()}
}

// read returns now on the timeline, or the clock's own reading if now is zero.
// The system clock is read by time.Since, at half the price of time.Now.
func (l *timeline) read(now time.Time) int64 {
	switch {
	case !now.IsZero():
		return int64(now.Sub(l.start))
	case l.clock == nil:
		return int64(time.Since(l.start))
	}
	return int64(l.clock.Now().Sub(l.start))
}

// at is the inverse of read.
func (l *timeline) at(ns int64) time.Time { return l.start.Add(time.Duration(ns)) }

// newWallTimeline counts from the Unix epoch by the wall clock, for windows that
// begin at instants which others see as well. It follows a wall clock that is set.
func newWallTimeline(c Clock) timeline {
	return timeline{clock: c, start: time.Unix(0, 0)}
}

// sinceEpoch returns how far the start is from the Unix epoch.
func (l *timeline) sinceEpoch() int64 { return int64(l.start.Sub(time.Unix(0, 0))) }

// stamp returns the reading that a decision as of now is based on: the caller's
// own value, if now is what read made of it.
func (l *timeline) stamp(now, given int64, callers time.Time) time.Time {
	if now == given && !callers.IsZero() {
		return callers
	}
	return l.at(now)
}
