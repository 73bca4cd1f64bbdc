package statedlimit

import (
	"time"

	"github.com/heed-go/heed/throttle"
)

// A windowStart is the time of the first response of a window: it states that all units but one
// remain. Most windows have a usual length, so the reset computed from that time is more exact than
// the stated one, which is rounded:
//
//	start                    start + 5 s      stated
//	├──────────────────────────────┼────────────┤
//	                     stated - resolution <┈┈
type windowStart struct {
	at    time.Time // zero: not known
	floor bool      // the server rounds its resets down
}

// OpeningDelay is the time from an estimated end of a window to the first request of the next one: jitter and rounding.
const OpeningDelay = 15 * time.Millisecond

// UsualLengths are the lengths of windows that are assumed, in descending order.
var UsualLengths = []time.Duration{
	24 * time.Hour, time.Hour, 30 * time.Minute, 15 * time.Minute, 10 * time.Minute, 5 * time.Minute, 2 * time.Minute,
	time.Minute, 30 * time.Second, 20 * time.Second, 15 * time.Second, 10 * time.Second, 5 * time.Second, 2 * time.Second, time.Second,
}

// lengthOf returns the shortest usual length of windows in which the longest time until a reset was d; d if
// there is none.
func lengthOf(d time.Duration) time.Duration {
	length := d
	for _, u := range UsualLengths {
		if d > 0 && u >= d {
			length = u
		}
	}
	return length
}

// refine returns the reset of the window. stated is the reset that the server states. It is too late by
// less than resolution or, if the server rounds its resets down, too early.
func (s *windowStart) refine(stated time.Time, resolution time.Duration) time.Time {
	if s.at.IsZero() {
		return stated
	}
	for _, length := range UsualLengths {
		end := s.at.Add(length)
		if late := end.Sub(stated); !s.floor && -resolution < late && late <= 0 || s.floor && 0 <= late && late < resolution {
			return end
		}
	}
	return stated
}

// observe applies l, received now. over reports whether the window before is over, and rejected
// whether the first claim after it was rejected without a later reset: then the server rounds its resets down.
func (s *windowStart) observe(l throttle.RemoteLimit, now time.Time, over, rejected bool) {
	switch {
	case l.Remaining == l.Limit-1 && l.Limit > 2:
		s.at = now
	case over:
		s.floor = s.floor || rejected && !s.at.IsZero()
		s.at = time.Time{}
	}
}
