package statedlimit

import (
	"cmp"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/quota/internal/inflight"
	"github.com/heed-go/heed/throttle"
)

// A sliding counter counts the requests of windows, and weights those of the window before by the part of
// it that is within the length of a window:
//
//	used = used in the window before (1 - time since the reset / length) + used in this window
//
// So what was used at a reset T, U units, comes back evenly until the next one, and nothing at T itself:
//
//	returned(T, t) = U (t - T) / length
//
// In its first window it looks like a fixed window. The first response after the reset distinguishes them,
// see Estimate.observeReset.

const (
	// Until it is known that a limit is no sliding counter, the probe after a reset is delayed until a counter
	// has restored one unit, unless that takes longer than a part of the window, or than maxUnitDelay.
	unitDelayPart = 40
	maxUnitDelay  = time.Second
)

// observeReset infers what it can from the first response after the reset of e: it was received now, and l
// states that left units are left until reset.
//
//	left
//	 │ ╲                 ┌──────┐         window: all but own requests
//	 │   ╲               │      ╵
//	 │     ╲             │     ╱
//	 │       ╲           │  ╱             sliding counter
//	 │         ╲_________╱
//	 └───────────────────┴─────────▶ time
//	                   reset
func (e *Estimate) observeReset(l throttle.RemoteLimit, left int64, reset, now time.Time, f *inflight.Claims) {
	r, length := &e.refill, e.windowLength()
	r.restart()
	if length <= 0 || e.Weighted || e.Reset.IsZero() || r.kind != refillsNextWindow && now.Before(e.Reset) {
		return
	}
	used, ahead := float64(e.Limit-e.Left(e.Reset)), reset.Sub(e.Reset)
	if ahead >= length+length/2 {
		used = 0 // all was used before the window before
	}
	restored := func(late time.Duration) float64 { // units that a counter has left late after the reset, without own requests
		return float64(e.Limit) - used*min(max(1-late.Seconds()/length.Seconds(), 0), 1)
	}
	own, slack, late := float64(e.sinceUpdate(f)), float64(slackOf(e.Limit)), now.Sub(e.Reset)
	window := float64(e.Limit) - own - slack // fewest units that are left in a fixed window
	switch most, least := restored(late+l.Resolution)+slack, restored(late-l.Resolution)-own-slack; {
	case float64(left) > most:
		same := ahead.Abs() < min(Tolerance, length/2) // the stated reset is as before
		if same && (r.kind == refillsAtReset || r.kind == refillUnknown && float64(left) < window) {
			r.kind = refillsOneByOne
			return
		}
		if r.together = true; r.kind == refillsNextWindow {
			r.kind = refillsAtReset
		}
	case r.kind == refillsNextWindow:
		if ahead >= length/2 {
			r.rate = used / length.Seconds()
		}
	case (ahead-length).Abs() > min(Tolerance, length/4) || float64(left) < least || most >= window:
	case r.together:
		r.together = false // the next reset shows it
	default:
		r.kind, r.window, r.rate = refillsNextWindow, length, used/length.Seconds()
	}
}

// slackOf returns the difference from limit units that is no evidence.
func slackOf(limit int64) int64 { return max(2, limit/20) }

// rejectedByCounter records that a request was rejected at now for which a sliding counter should have
// restored a unit. Soon after a reset, the server rounds its resets down, by less than resolution. Otherwise
// units come back in another way, or other clients use them.
func (e *Estimate) rejectedByCounter(resolution time.Duration, now time.Time) {
	r := &e.refill
	if r.kind != refillsNextWindow {
		return
	}
	began := e.Reset
	if now.Before(began) {
		began = began.Add(-r.window)
	}
	if now.Sub(began) < resolution && !r.floor {
		r.floor = true
		return
	}
	r.kind, r.together = refillsAtReset, true
}

// windowLength returns the length of the windows of e: the one that the server states, or a usual one that
// agrees with the resets. It is 0 if nothing is known.
func (e *Estimate) windowLength() time.Duration {
	if e.refill.kind == refillsNextWindow {
		return e.refill.window
	}
	return cmp.Or(e.Per, lengthOf(e.window))
}

// unitDelay returns how long after its reset a probe of e is sent, so that a sliding counter has restored
// one unit then.
func (e *Estimate) unitDelay() time.Duration {
	r, length, used := &e.refill, e.windowLength(), e.Limit-e.Left(e.Reset)
	if r.together || r.kind == refillsOneByOne || e.Weighted || used <= 0 {
		return 0
	}
	delay := length/time.Duration(used) + time.Microsecond
	if delay > min(length/unitDelayPart, maxUnitDelay) {
		return 0
	}
	return delay
}

// returnedOfCounter returns how many units of a sliding counter came back since the latest update, as of now.
func (e *Estimate) returnedOfCounter(now time.Time) float64 {
	missing := float64(max(e.Limit-e.Remaining, 0))
	if !now.After(e.Reset) {
		return min(max(e.refill.rate*now.Sub(e.At).Seconds(), 0), missing)
	}
	back := e.returnedOfCounter(e.Reset)
	return back + (missing-back)*min(now.Sub(ticks.Later(e.Reset, e.At)).Seconds()/e.refill.window.Seconds(), 1)
}

// untilReturned returns the seconds from the latest update until so many units of a sliding counter have come
// back, at most all that are missing.
func (e *Estimate) untilReturned(units float64) float64 {
	const margin = 1e-6 // for rounding
	r, back, missing := &e.refill, e.returnedOfCounter(e.Reset), float64(e.Limit-e.Remaining)
	if units <= back {
		return units/r.rate + margin
	}
	return ticks.Later(e.Reset, e.At).Sub(e.At).Seconds() + (units-back)/(missing-back)*r.window.Seconds() + margin
}

// mostOfCounter returns how many units a sliding counter has left as of now at most, in the same window.
func (e *Estimate) mostOfCounter(now time.Time) int64 {
	perSecond := float64(e.Limit) / e.refill.window.Seconds()
	return e.Remaining + int64(perSecond*now.Sub(e.At).Seconds()) + slackOf(e.Limit)
}
