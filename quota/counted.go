package quota

import "time"

// countedWindows is what is known of the windows of a limit that only rejections state. The requests
// of a window are counted here, since responses to accepted ones do not state it. A window begins with
// the request that is accepted after the end of the one before. It ends when the next
// rejection states, and then on a grid of that, unless windows begin with their first request.
type countedWindows struct {
	on      bool          // the server states the limit in rejections only
	end     time.Time     // of a window, as a rejection stated it; zero: none did
	length  time.Duration // of windows; 0: not known, so a request is sent beyond the limit to learn it
	windows int           // since the length was learned
	offGrid bool          // a window ended later than on the grid of those before
	refuted bool          // a rejection came long before a window was used up: units come back in another way
}

// rejected takes in a rejection of a request that was sent in the present window, of which
// left of limit units are left by what was counted.
func (c *countedWindows) rejected(left, limit int64) {
	if c.on && left > max(limit/8, 1) {
		*c = countedWindows{refuted: true}
	}
}

// ends takes in that a rejection stated the end of the window that began at start.
func (c *countedWindows) ends(end, start time.Time) {
	before := c.end
	c.end = end
	if !c.on || end.Sub(before) <= tolerance {
		return
	}
	length := end.Sub(start) // from the first request
	if start.Sub(before) < tolerance {
		length = end.Sub(before)
	}
	for _, u := range usualLengths {
		if d := length - u; -tolerance < d && d < tolerance {
			length = u
			break
		}
	}
	if c.length > 0 && (end.Sub(before)%c.length).Abs() > tolerance && c.length-end.Sub(before)%c.length > tolerance {
		c.offGrid = true
	}
	c.length, c.windows = length, 0
}

// next returns the end of the window that begins now: now, if that is not known.
func (c *countedWindows) next(now time.Time) time.Time {
	switch {
	case c.length <= 0:
		return now
	case c.offGrid || c.end.IsZero():
		return now.Add(c.length)
	}
	passed := now.Sub(c.end) % c.length
	if passed < 0 {
		passed += c.length
	}
	return now.Add(c.length - passed)
}

// beginWindow notes that the window of t began with the request whose response came now: it was
// accepted, and its response states nothing.
func (e *estimate) beginWindow(now time.Time, f *inFlight) {
	e.counted.on, e.early = true, earlyTest{}
	if e.counted.windows++; e.counted.windows > testEvery {
		e.counted.windows, e.counted.length = 0, 0 // the limit may have been raised: one request goes beyond it
	}
	e.remaining, e.at, e.seen, e.openThen, e.probe = e.limit-1, now, f.sent, f.open, false
	e.reset = e.counted.next(now)
	e.refill = refill{kind: refillsAtReset}
}
