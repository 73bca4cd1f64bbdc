// Package hold decides how long requests stop after a rejection, and when one request tests whether the
// server accepts them again.
package hold

import (
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/quota/internal/inflight"
)

// A Hold is the time during which a quota grants no claims because the server rejected a request.
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
// states. A later end may be a mistake, so a probe is sent after Rejection.MaxHold, and the next ones
// after three, nine ... times as long. If two rejected probes each moved the end to a later time,
// probes extend a ban, and none is sent before the stated end.
//
// A Hold is not safe for concurrent use. In the zero Hold, claims are granted.
type Hold struct {
	Until     time.Time // no claim is granted before
	Active    bool      // from until on, one claim is in flight at a time: the probe
	Estimated bool      // the server did not state that clients have to wait
	Abandoned bool      // the latest hold ended although no probe was accepted

	Rejections int       // events since the last probe that was accepted: the first, and rejected probes
	Since      time.Time // of the first event
	RejectedAt time.Time // of the latest event
	LastSent   uint64    // number of the latest claim at the latest event
	InFlight   int64     // requests in flight before the first event

	statedEnd   time.Time // latest end that the server stated; zero: none
	movedProbes int       // rejected probes that moved it
	earlyProbes int       // probes that were planned for a time before it

	// Of the latest estimated hold, until the claim that was accepted. Zero: there was none.
	LastPause time.Duration // since its latest event: so long without requests sufficed
	LastTotal time.Duration // since its first event
}

const (
	BasePause   = time.Second // longest pause after the first rejection that states none
	pauseGrowth = 1.6         // factor: each next pause
	MaxPause    = time.Minute // no pause that the server does not state is longer

	MaxStated = time.Hour              // wait that is obeyed without an early probe
	MaxLate   = 250 * time.Millisecond // longest random delay of a probe after a stated end
	MovedBy   = time.Minute            // an end that is so much later has moved
	MaxMoved  = 2                      // rejected probes that moved the end, after which no early probe is sent
)

// A Rejection describes a rejected request, as far as it concerns a hold.
type Rejection struct {
	RetryAfter time.Duration // stated wait; 0: none
	Estimated  bool          // the server does not state that clients have to wait
	Pause      time.Duration // wait if none is stated; 0: as defaultPause
	Window     time.Duration // longest window that the server states; 0: none
	MaxHold    time.Duration // wait for the first early probe
	Spread     time.Duration // longest random delay of the probe, so that several clients do not probe in the same order each time
	Random     float64       // random number in [0, 1)
	Sent       uint64        // number of the latest claim
	InFlight   int64         // requests that were in flight before
}

// Check reports whether a claim may be granted as of now. If not, wait is the time until it may; 0:
// when the response to the probe has arrived.
func (h *Hold) Check(now time.Time, f *inflight.Claims) (wait time.Duration, ok bool) {
	if wait = h.Until.Sub(now); wait > 0 {
		return wait, false
	}
	return 0, !h.Active || f.After(h.LastSent) == 0
}

// Rejected begins or extends the hold, because claim n was rejected at now. It reports whether this
// is a new event. The pause is random: later than what the server states, and otherwise earlier than
// the default.
func (h *Hold) Rejected(n uint64, now time.Time, r Rejection) (isNew bool) {
	if isNew = n > h.LastSent; isNew {
		h.Rejections, h.LastSent, h.RejectedAt, h.Active, h.Abandoned = h.Rejections+1, r.Sent, now, true, false
		h.Estimated = r.Estimated && !h.statedEnd.After(now)
		if h.Rejections == 1 {
			h.Since, h.InFlight = now, r.InFlight
		}
	}
	pause := min(max(r.RetryAfter, 0), headers.MaxDelay)
	switch {
	case pause > 0:
		pause = h.waitForProbe(pause, isNew, now, r)
		pause += time.Duration(r.Random * float64(max(h.lateness(pause), r.Spread)))
	case isNew && h.statedEnd.After(now): // an early probe was rejected without a new end
		pause = h.waitForProbe(h.statedEnd.Sub(now), isNew, now, r)
	case isNew && r.Pause > 0:
		pause = r.Pause
	case isNew:
		pause = h.defaultPause()
		pause -= time.Duration(r.Random * float64(pause) / 2)
	}
	h.Until = ticks.Later(h.Until, now.Add(pause))
	return isNew
}

// waitForProbe returns the time until the probe of a hold that ends, as the server states, after
// stated. The end never becomes earlier.
func (h *Hold) waitForProbe(stated time.Duration, isNew bool, now time.Time, r Rejection) time.Duration {
	end := now.Add(stated)
	if isNew && h.Rejections > 1 && !h.statedEnd.IsZero() && end.Sub(h.statedEnd) > MovedBy {
		h.movedProbes++
	}
	h.statedEnd = ticks.Later(h.statedEnd, end)
	stated = h.statedEnd.Sub(now)
	if stated <= max(MaxStated, r.Window) || h.movedProbes >= MaxMoved {
		return stated
	}
	if isNew {
		h.earlyProbes++
	}
	return min(stated, Tripled(r.MaxHold, h.earlyProbes-1))
}

// Tripled returns d times three to the power of n, at most headers.MaxDelay. A negative n counts as 0.
func Tripled(d time.Duration, n int) time.Duration {
	return time.Duration(min(float64(d)*math.Pow(3, float64(max(n, 0))), float64(headers.MaxDelay)))
}

// defaultPause returns the longest pause where the server states none: exponential backoff.
func (h *Hold) defaultPause() time.Duration {
	return time.Duration(min(float64(BasePause)*math.Pow(pauseGrowth, float64(h.Rejections-1)), float64(MaxPause)))
}

// lateness returns the longest random delay of the probe after a wait that the server states. It is
// doubled with each rejected probe, because some servers round down, and so that the probes of many
// clients, which were rejected together, come apart.
func (h *Hold) lateness(stated time.Duration) time.Duration {
	return min(stated/40, MaxLate) << min(max(h.Rejections-1, 0), 5)
}

// Accepted ends the hold if claim n, which was accepted, is the probe. sent is when the latest claim
// was granted.
func (h *Hold) Accepted(n uint64, sent time.Time) (ended bool) {
	if !h.Active || n <= h.LastSent {
		return false
	}
	if h.Estimated {
		if due := h.Until.Add(BasePause); sent.After(due) {
			sent = due // there was no request to send, so a shorter pause may have sufficed
		}
		pause, total := sent.Sub(h.RejectedAt), sent.Sub(h.Since)
		if h.LastPause > 0 && total > 2*h.LastPause {
			pause = total // the server does not begin its pause again with each probe
		}
		h.LastPause, h.LastTotal = pause, total
	}
	h.End()
	return true
}

// End ends the hold. The fields lastSent, lastPause and lastTotal remain.
func (h *Hold) End() {
	h.Active, h.Rejections, h.statedEnd, h.movedProbes, h.earlyProbes = false, 0, time.Time{}, 0, 0
}
