package ticks

import "time"

// A Clock gives the current time. throttle.Clock implements it.
type Clock interface{ Now() time.Time }

// A Timeline counts nanoseconds from its start, so that limiters can calculate with
// int64. Readings before the start are negative. Readings that an int64 cannot express
// saturate.
type Timeline struct {
	clock Clock // nil: the system clock
	start time.Time
	wall  bool // start is the Unix epoch, without a monotonic reading
	epoch bool // start is the Unix epoch, with the monotonic reading that it would have had
}

// NewTimeline returns a Timeline that reads the system clock and starts now.
func NewTimeline() Timeline { return Timeline{start: time.Now()} }

// NewWallTimeline returns a Timeline that counts from the Unix epoch by the wall clock,
// for windows whose boundaries are known to other systems. It follows changes of the wall
// clock.
func NewWallTimeline() Timeline { return Timeline{start: time.Unix(0, 0), wall: true} }

// NewEpochTimeline returns a Timeline that counts from the Unix epoch and advances with the
// monotonic clock.
func NewEpochTimeline() Timeline { return Timeline{start: epochOf(time.Now()), epoch: true} }

// epochOf returns the Unix epoch on the monotonic clock of now, if it has one.
func epochOf(now time.Time) time.Time { return now.Add(time.Unix(0, 0).Sub(now)) }

// SetClock makes l read c, and start now by c unless it counts from the Unix epoch. A nil
// clock means the system clock.
func (l *Timeline) SetClock(c Clock) {
	l.clock = c
	switch {
	case l.epoch:
		l.start = epochOf(l.now())
	case !l.wall:
		l.start = l.now()
	}
}

func (l *Timeline) now() time.Time {
	if l.clock == nil {
		return time.Now()
	}
	return l.clock.Now()
}

// Read returns now on the timeline, or the reading of the clock if now is zero. The system
// clock is read by time.Since, which takes half the time of time.Now.
func (l *Timeline) Read(now time.Time) int64 {
	switch {
	case !now.IsZero():
		return int64(now.Sub(l.start))
	case l.clock == nil:
		return int64(time.Since(l.start))
	}
	return int64(l.clock.Now().Sub(l.start))
}

// At is the inverse of Read.
func (l *Timeline) At(ns int64) time.Time { return l.start.Add(time.Duration(ns)) }

// SinceEpoch returns the start in nanoseconds since the Unix epoch.
func (l *Timeline) SinceEpoch() int64 { return int64(l.start.Sub(time.Unix(0, 0))) }

// Stamp returns the reading that a decision as of now is based on. If now equals given,
// which Read returned for callers, it returns callers.
func (l *Timeline) Stamp(now, given int64, callers time.Time) time.Time {
	if now == given && !callers.IsZero() {
		return callers
	}
	return l.At(now)
}
