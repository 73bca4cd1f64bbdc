package ticks

import "time"

// slowThreshold is the duration of a claim from which on its time is added to the reading:
// longer than limiters in memory need, shorter than a remote one needs.
const slowThreshold = time.Millisecond

var processStart = time.Now()

// SinceStart returns the time since the start of the process by the monotonic clock. It
// takes half the time of time.Now.
func SinceStart() time.Duration { return time.Since(processStart) }

// A Stopwatch advances the reading of a claim while limiters are asked.
type Stopwatch struct {
	reading time.Time // the caller's reading; zero: each limiter reads its own clock
	started time.Duration
}

// StartStopwatch returns a Stopwatch that starts at the given reading. If reading is
// zero, Now always returns zero.
func StartStopwatch(reading time.Time) Stopwatch {
	if reading.IsZero() {
		return Stopwatch{}
	}
	return Stopwatch{reading, SinceStart()}
}

// Now returns the current reading. It is the reading at the start until slowThreshold has
// passed, so that claims replayed from data are exact.
func (s Stopwatch) Now() time.Time {
	if s.reading.IsZero() {
		return time.Time{}
	}
	if d := SinceStart() - s.started; d > slowThreshold {
		return s.reading.Add(d)
	}
	return s.reading
}
