package quota

import (
	"net/http"
	"slices"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// A clockOffset estimates when the seconds of a server's clock begin. A reset that is stated as a
// time counts from the Date of the response, which is in whole seconds, so the wait is up to a second
// too long:
//
//	server  ├────── 10:00:07 ──────┼────── 10:00:08 ──
//	               ▲          ▲     ▲
//	          Date is 7       7     8, just begun: the latest Date, relative to the local clock
//
// The server's time of a response is that of the response with the latest Date, relative to the
// local clock, plus the time since then.
type clockOffset struct {
	offset time.Duration // of the latest Date from the local clock
	known  bool
}

// roundedOff returns the fraction of a second that date, of a response received now, leaves out
// at least.
func (c *clockOffset) roundedOff(date, now time.Time) time.Duration {
	offset := date.Sub(now)
	if fraction := c.offset - offset; c.known && fraction >= 0 && fraction < 3*time.Second/2 {
		return fraction
	}
	c.offset, c.known = offset, true // it is later, or a clock was set
	return 0
}

// refineResets subtracts from the resets in r, which are stated as times, the fraction of a second
// that the Date in h leaves out.
func (ep *endpoint) refineResets(r *headers.Report, h http.Header, now time.Time) {
	if !slices.ContainsFunc(r.Limits, isAbsolute) {
		return
	}
	date, ok := headers.ParseDate(h["Date"], now)
	if !ok {
		return
	}
	ep.mu.Lock()
	fraction := ep.clock.roundedOff(date, now)
	ep.mu.Unlock()
	for i := range r.Limits {
		if l := &r.Limits[i]; isAbsolute(*l) {
			l.ResetAfter = max(l.ResetAfter-fraction, 0)
		}
	}
}

// isAbsolute reports whether the reset of l is stated as a time.
func isAbsolute(l headers.Limit) bool {
	return l.ResetFormat == headers.FormatEpochSeconds || l.ResetFormat == headers.FormatDate
}

// A windowStart is the time of the first response of a window: it states that all units but one
// remain. Most windows have a usual length, so the reset computed from that time is more exact than
// the stated one, which is rounded:
//
//	start                    start + 5 s      stated
//	├──────────────────────────────┼────────────┤
//	                     stated - resolution <┈┈
type windowStart struct {
	at     time.Time     // zero: not known
	length time.Duration // of the windows; 0: not known
	floor  bool          // the server rounds its resets down
	wrong  bool          // a claim after a computed reset was rejected: windows of this server begin otherwise
}

// usualLengths are the lengths of windows that are assumed, in descending order.
var usualLengths = []time.Duration{
	24 * time.Hour, time.Hour, 30 * time.Minute, 15 * time.Minute, 10 * time.Minute, 5 * time.Minute, 2 * time.Minute,
	time.Minute, 30 * time.Second, 20 * time.Second, 15 * time.Second, 10 * time.Second, 5 * time.Second, 2 * time.Second, time.Second,
}

// refine returns the reset of the window. stated is the reset that the server states. It is too late by
// less than resolution or, if the server rounds its resets down, too early.
func (s *windowStart) refine(stated time.Time, resolution time.Duration) time.Time {
	if s.at.IsZero() || s.wrong {
		return stated
	}
	for _, length := range usualLengths {
		end := s.at.Add(length)
		if late := end.Sub(stated); !s.floor && -resolution < late && late <= 0 || s.floor && 0 <= late && late < resolution {
			s.length = length
			return end
		}
	}
	return stated
}

// observe applies l, received now. over reports whether the window before is over, and rejected
// whether the first claim after it was rejected: then the server rounds its resets down, or its
// windows have an unusual length.
func (s *windowStart) observe(l throttle.RemoteLimit, now time.Time, over, rejected bool) {
	switch {
	case l.Remaining == l.Limit-1 && l.Limit > 2:
		s.at = now
	case over:
		if rejected && !s.at.IsZero() {
			s.wrong = s.floor
			s.floor = s.floor || l.Resolution > 0
			s.wrong = s.wrong || !s.floor
		}
		s.at = time.Time{}
	}
}
