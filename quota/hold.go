package quota

import (
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/headers"
)

// A hold is the time during which a quota grants no claims because the server rejected a request.
// It ends with a probe, one claim that tests whether the server accepts requests again:
//
//	          rejection             at until             accepted
//	no hold ─────────────▶ waiting ──────────▶ probing ────────────▶ no hold
//	                          ▲                   │
//	                          └───── rejected ────┘  (longer each time)
//
// All rejections of one burst are one event: only the response to a claim that was granted after
// the latest event is another one. The probe is such a claim.
//
// A wait that the server states is obeyed up to one hour, or up to the longest window that it
// states. A later end may be a mistake, so a probe is sent after Tracker.MaxHold, and the next ones
// after three, nine ... times as long. If two rejected probes each moved the end to a later time,
// probes extend a ban, and none is sent before the stated end.
//
// The fields are guarded by quota.mu. In the zero hold, claims are granted.
type hold struct {
	until     time.Time // no claim is granted before
	active    bool      // from until on, one claim is in flight at a time: the probe
	estimated bool      // the server did not state that clients have to wait

	rejections int       // events since the last probe that was accepted: the first, and rejected probes
	since      time.Time // of the first event
	rejectedAt time.Time // of the latest event
	lastSent   uint64    // number of the latest claim at the latest event
	inFlight   int64     // requests in flight before the first event

	statedEnd   time.Time // latest end that the server stated; zero: none
	movedProbes int       // rejected probes that moved it
	earlyProbes int       // probes that were planned for a time before it

	// Of the latest estimated hold, until the claim that was accepted. Zero: there was none.
	lastPause time.Duration // since its latest event: so long without requests sufficed
	lastTotal time.Duration // since its first event
}

const (
	basePause   = time.Second // longest pause after the first rejection that states none
	pauseGrowth = 1.6         // factor: each next pause
	maxPause    = time.Minute // no pause that the server does not state is longer

	maxStated = time.Hour              // wait that is obeyed without an early probe
	maxLate   = 250 * time.Millisecond // longest random delay of a probe after a stated end
	movedBy   = time.Minute            // an end that is so much later has moved
	maxMoved  = 2                      // rejected probes that moved the end, after which no early probe is sent
)

// A rejection describes a rejected request, as far as it concerns a hold.
type rejection struct {
	retryAfter time.Duration // stated wait; 0: none
	estimated  bool          // the server does not state that clients have to wait
	pause      time.Duration // wait if none is stated; 0: as defaultPause
	window     time.Duration // longest window that the server states; 0: none
	maxHold    time.Duration // wait for the first early probe
	spread     time.Duration // longest random delay of the probe, so that several clients do not probe in the same order each time
	random     float64       // random number in [0, 1)
	sent       uint64        // number of the latest claim
	inFlight   int64         // requests that were in flight before
}

// check reports whether a claim may be granted as of now. If not, wait is the time until it may; 0:
// when the response to the probe has arrived.
func (h *hold) check(now time.Time, f *inFlight) (wait time.Duration, ok bool) {
	if wait = h.until.Sub(now); wait > 0 {
		return wait, false
	}
	return 0, !h.active || f.after(h.lastSent) == 0
}

// rejected begins or extends the hold, because claim n was rejected at now. It reports whether this
// is a new event. The pause is random: later than what the server states, and otherwise earlier than
// the default.
func (h *hold) rejected(n uint64, now time.Time, r rejection) (isNew bool) {
	if isNew = n > h.lastSent; isNew {
		h.rejections, h.lastSent, h.rejectedAt, h.active = h.rejections+1, r.sent, now, true
		h.estimated = r.estimated && !h.statedEnd.After(now)
		if h.rejections == 1 {
			h.since, h.inFlight = now, r.inFlight
		}
	}
	pause := min(max(r.retryAfter, 0), headers.MaxDelay)
	switch {
	case pause > 0:
		pause = h.waitForProbe(pause, isNew, now, r)
		pause += time.Duration(r.random * float64(max(h.lateness(pause), r.spread)))
	case isNew && h.statedEnd.After(now): // an early probe was rejected without a new end
		pause = h.waitForProbe(h.statedEnd.Sub(now), isNew, now, r)
	case isNew && r.pause > 0:
		pause = r.pause
	case isNew:
		pause = h.defaultPause()
		pause -= time.Duration(r.random * float64(pause) / 2)
	}
	h.until = ticks.Later(h.until, now.Add(pause))
	return isNew
}

// waitForProbe returns the time until the probe of a hold that ends, as the server states, after
// stated. The end never becomes earlier.
func (h *hold) waitForProbe(stated time.Duration, isNew bool, now time.Time, r rejection) time.Duration {
	end := now.Add(stated)
	if isNew && h.rejections > 1 && !h.statedEnd.IsZero() && end.Sub(h.statedEnd) > movedBy {
		h.movedProbes++
	}
	h.statedEnd = ticks.Later(h.statedEnd, end)
	stated = h.statedEnd.Sub(now)
	if stated <= max(maxStated, r.window) || h.movedProbes >= maxMoved {
		return stated
	}
	if isNew {
		h.earlyProbes++
	}
	return min(stated, tripled(r.maxHold, h.earlyProbes-1))
}

// tripled returns d times three to the power of n, at most headers.MaxDelay. A negative n counts as 0.
func tripled(d time.Duration, n int) time.Duration {
	return time.Duration(min(float64(d)*math.Pow(3, float64(max(n, 0))), float64(headers.MaxDelay)))
}

// defaultPause returns the longest pause where the server states none: exponential backoff.
func (h *hold) defaultPause() time.Duration {
	return time.Duration(min(float64(basePause)*math.Pow(pauseGrowth, float64(h.rejections-1)), float64(maxPause)))
}

// lateness returns the longest random delay of the probe after a wait that the server states. It is
// doubled with each rejected probe, because some servers round down, and so that the probes of many
// clients, which were rejected together, come apart.
func (h *hold) lateness(stated time.Duration) time.Duration {
	return min(stated/40, maxLate) << min(max(h.rejections-1, 0), 5)
}

// accepted ends the hold if claim n, which was accepted, is the probe. sent is when the latest claim
// was granted.
func (h *hold) accepted(n uint64, sent time.Time) (ended bool) {
	if !h.active || n <= h.lastSent {
		return false
	}
	if h.estimated {
		if due := h.until.Add(basePause); sent.After(due) {
			sent = due // there was no request to send, so a shorter pause may have sufficed
		}
		pause, total := sent.Sub(h.rejectedAt), sent.Sub(h.since)
		if h.lastPause > 0 && total > 2*h.lastPause {
			pause = total // the server does not begin its pause again with each probe
		}
		h.lastPause, h.lastTotal = pause, total
	}
	h.end()
	return true
}

// end ends the hold. The fields lastSent, lastPause and lastTotal remain.
func (h *hold) end() {
	h.active, h.rejections, h.statedEnd, h.movedProbes, h.earlyProbes = false, 0, time.Time{}, 0, 0
}
