package quota

import (
	"math"
	"time"
)

// A hold shuts when the server says stop, and opens by one probe.
//
//	shut ──── until ────▶ ajar ──── accepted ────▶ open
//	  ▲                     │
//	  └───── rejected ──────┘   (longer each time)
//
// Many rejections of one burst are one event: only the response to a claim that was
// sent after the gate had opened shuts it again.
//
// An end that the server states is obeyed up to an hour, or up to its window where it
// states one that is longer. Later ends may be mistakes, so one probe is sent after
// Tracker.MaxHold, and then after three, nine ... times as long. If two rejected probes
// each moved the end, probes extend the ban: there are no more until the stated end.
type hold struct {
	until     time.Time     // shut until then
	active    bool          // from until on, one claim at a time
	closings  int           // times it was shut since the last accepted request
	closedAt  time.Time     // when it was last shut
	since     time.Time     // when it was shut for the first time since it was open
	lastGap   time.Duration // without requests that ended the latest hold that the server did not state; 0: none yet
	lastTotal time.Duration // of that hold
	lastSent  uint64        // number of the latest claim sent when it was shut

	estimated bool // the server did not state that to stop

	stated      time.Time // the latest end that the server stated; zero: none
	movedProbes int       // rejected probes that moved it
	earlyProbes int       // times that until was earlier than stated

	inFlight int64 // requests in flight when it began
}

const (
	basePause   = time.Second
	pauseGrowth = 1.6 // each time
	maxPause    = time.Minute

	maxStated   = time.Hour              // that a stated end is obeyed without a probe
	maxLate     = 250 * time.Millisecond // that a probe comes after the stated end
	movedBy     = time.Minute            // or more later, and the end has moved
	maxMoved    = 2                      // rejected probes that moved the end, and no more are sent
	defaultHold = 15 * time.Minute
)

// A closing says how a gate is to be shut.
type closing struct {
	retryAfter     time.Duration // stated; 0: none
	estimated      bool          // the server did not state that to stop
	window         time.Duration // the longest that the server states; 0: none
	maxHold        time.Duration // until the first probe of an end that is too late
	spread         time.Duration // how much later than stated the probe may come, so that several clients do not come together
	sent           uint64        // number of the latest claim
	random         float64
	estimatedPause time.Duration // pause if the server states none; 0: a usual one
	inFlight       int64         // requests in flight before the rejection
}

// check reports whether a claim may pass as of now. If not, wait says when to ask
// again; 0: when the response to the probe has come.
func (h *hold) check(now time.Time, f *inFlight) (wait time.Duration, ok bool) {
	if wait = h.until.Sub(now); wait > 0 {
		return wait, false
	}
	return 0, !h.active || f.after(h.lastSent) == 0
}

// close closes the gate because of the response to claim n. The pause is what the server
// stated or our own, and random in both cases, upwards of what was stated. It reports
// whether this was a new event.
func (h *hold) close(n uint64, now time.Time, s closing) (anew bool) {
	if anew = n > h.lastSent; anew {
		h.closings, h.lastSent, h.closedAt, h.active = h.closings+1, s.sent, now, true
		h.estimated = s.estimated && !h.stated.After(now)
		if h.closings == 1 {
			h.since, h.inFlight = now, s.inFlight
		}
	}
	pause := min(max(s.retryAfter, 0), maxDelay)
	switch {
	case pause > 0:
		pause = h.boundedWait(pause, anew, now, s)
		pause += time.Duration(s.random * float64(max(h.lateness(pause), s.spread)))
	case anew && h.stated.After(now): // the probe of a stated end was rejected without a new one
		pause = h.boundedWait(h.stated.Sub(now), anew, now, s)
	case anew && s.estimatedPause > 0:
		pause = s.estimatedPause
	case anew:
		pause = defaultPause(h.closings)
		pause -= time.Duration(s.random * float64(pause) / 2)
	}
	if until := now.Add(pause); until.After(h.until) {
		h.until = until
	}
	return anew
}

// boundedWait returns when to send the probe of an end that is stated to be so far away.
func (h *hold) boundedWait(stated time.Duration, anew bool, now time.Time, s closing) time.Duration {
	end := now.Add(stated)
	if anew && h.closings > 1 && !h.stated.IsZero() && end.Sub(h.stated) > movedBy {
		h.movedProbes++
	}
	h.stated = later(h.stated, end)
	stated = h.stated.Sub(now) // a rejected probe never shortens a hold
	if stated <= max(maxStated, s.window) || h.movedProbes >= maxMoved {
		return stated
	}
	if anew {
		h.earlyProbes++
	}
	return min(stated, tripled(s.maxHold, h.earlyProbes-1))
}

// tripled returns d times three to the power of n.
func tripled(d time.Duration, n int) time.Duration {
	return time.Duration(min(float64(d)*math.Pow(3, float64(max(n, 0))), float64(maxDelay)))
}

// defaultPause is how long the gate stays shut at most where the server does not say.
func defaultPause(strikes int) time.Duration {
	return time.Duration(min(float64(basePause)*math.Pow(pauseGrowth, float64(strikes-1)), float64(maxPause)))
}

// lateness is how much later than stated the probe may come. It grows when a stated wait
// turns out to be too short: some servers round down.
func (h *hold) lateness(stated time.Duration) time.Duration {
	return min(stated/40, maxLate) << min(max(h.closings-1, 0), 5)
}

// probeAccepted opens the gate if n was the probe.
func (h *hold) probeAccepted(n uint64, sent time.Time) (opened bool) {
	if !h.active || n <= h.lastSent {
		return false
	}
	if h.estimated {
		if due := h.until.Add(basePause); sent.After(due) {
			sent = due // nothing was to be sent: the hold may have ended earlier
		}
		gap, total := sent.Sub(h.closedAt), sent.Sub(h.since)
		if h.lastGap > 0 && total > 2*h.lastGap {
			gap = total // probes do not extend it, so it takes so long
		}
		h.lastGap, h.lastTotal = gap, total
	}
	h.end()
	return true
}

// end ends the hold.
func (h *hold) end() {
	h.active, h.closings, h.stated, h.movedProbes, h.earlyProbes = false, 0, time.Time{}, 0, 0
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
