package quota

import (
	"net/http"
	"slices"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
)

// A date line says where the seconds of a server's clock begin on ours. A reset
// that is told as a point in time counts from the answer's Date, which has whole
// seconds, so each telling is up to a second too late:
//
//	server  ├────── 10:00:07 ──────┼────── 10:00:08 ──
//	               ▲          ▲     ▲
//	          Date is 7   still 7   8, and only just: the best that we have seen
//
// The true time of an answer is that of the best one and what has passed on our
// clock since.
type clockOffset struct {
	offset time.Duration // of the best Date over our clock
	known  bool
}

// roundedOff returns how much of a second the Date of an answer leaves out at least.
func (c *clockOffset) roundedOff(date, now time.Time) time.Duration {
	lead := date.Sub(now)
	if past := c.offset - lead; c.known && past >= 0 && past < 3*time.Second/2 {
		return past
	}
	// A better one, or somebody has set a clock.
	c.offset, c.known = lead, true
	return 0
}

// refineResets takes from the resets in r what the answer's Date leaves out.
func (ep *endpoint) refineResets(r *headers.Report, h http.Header, now time.Time) {
	if !slices.ContainsFunc(r.Limits, isAbsolute) {
		return
	}
	date, ok := headers.ParseDate(h["Date"], now)
	if !ok {
		return
	}
	ep.mu.Lock()
	unsaid := ep.clock.roundedOff(date, now)
	ep.mu.Unlock()
	for i := range r.Limits {
		if l := &r.Limits[i]; isAbsolute(*l) {
			l.ResetAfter = max(l.ResetAfter-unsaid, 0)
		}
	}
}

func isAbsolute(l headers.Limit) bool {
	return l.ResetFormat == headers.FormatEpochSeconds || l.ResetFormat == headers.FormatDate
}

// An windowStart is the answer that was the first of its window: it says that all but
// one unit are left. Most windows are as long as people would say it, so the moment
// of that answer tells the reset better than the server does:
//
//	opened                   opened + 5 s     told
//	├──────────────────────────────┼────────────┤
//	                         told - roughness <┈┈
type windowStart struct {
	at     time.Time     // zero: not seen
	length time.Duration // of the windows; 0: not known
	floor  bool          // the server rounds its resets down
	wrong  bool          // a claim that went by it was refused: this server has other windows
}

// usual are the lengths of windows that are guessed, from long to short.
var usualLengths = []time.Duration{
	24 * time.Hour, time.Hour, 30 * time.Minute, 15 * time.Minute, 10 * time.Minute, 5 * time.Minute, 2 * time.Minute,
	time.Minute, 30 * time.Second, 20 * time.Second, 15 * time.Second, 10 * time.Second, 5 * time.Second, 2 * time.Second, time.Second,
}

// refine returns when the window ends, which is stated to end at stated. The true end is up to rough
// earlier, or later if the server rounds down.
func (s *windowStart) refine(stated time.Time, rough time.Duration) time.Time {
	if s.at.IsZero() || s.wrong {
		return stated
	}
	for _, w := range usualLengths {
		end := s.at.Add(w)
		if late := end.Sub(stated); !s.floor && -rough < late && late <= 0 || s.floor && 0 <= late && late < rough {
			s.length = w
			return end
		}
	}
	return stated
}

// observe notes when the window began that w states. over reports that it is not the one before,
// and rejected that the probe of the one before was rejected: the server rounds its resets down, or
// has windows of an unusual length.
func (s *windowStart) observe(w throttle.RemoteLimit, now time.Time, over, rejected bool) {
	switch {
	case w.Remaining == w.Limit-1 && w.Limit > 2:
		s.at = now
	case over:
		if rejected && !s.at.IsZero() {
			s.wrong = s.floor
			s.floor = s.floor || w.Resolution > 0
			s.wrong = s.wrong || !s.floor
		}
		s.at = time.Time{}
	}
}
