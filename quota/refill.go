package quota

import (
	"cmp"
	"time"
)

// A refillKind is how the units of a server limit come back.
type refillKind uint8

const (
	refillUnknown     refillKind = iota // not known yet
	refillsAtReset                      // all together, at the reset: a fixed window
	refillsEvenly                       // at a constant rate: a token bucket
	refillsEach                         // each a fixed time after it was used: a sliding log
	refillsNextWindow                   // evenly, during the window after the one in which they were used: a sliding counter
)

const (
	sureAfter  = time.Second      // a rate that was measured for so long replaces a higher one
	renewAfter = 10 * time.Second // time after which a measurement of the rate begins again

	// A probe after a reset is delayed until a sliding counter would have restored one unit, but only if that is
	// soon: within a part of the window, and within maxCounterDelay.
	counterDelayPart = 40
	maxCounterDelay  = time.Second
)

// A refill models how the units of one server limit come back. It measures the number of units that
// came back since a response that stated what was left then:
//
//	came back >= left now - left then + accepted responses since then - claims in flight then
//
// The server may have counted the claims in flight then before that response or after it. All of them
// are taken as counted before, so this is a lower bound, and so is the rate. The zero refill knows
// nothing.
type refill struct {
	kind      refillKind
	rate      float64       // units per second, if kind is refillsEvenly, or until the reset if it is refillsNextWindow
	together  bool          // at the latest reset more came back than of a sliding counter
	floor     bool          // the resets of a sliding counter are rounded down
	left      int64         // units left when the measurement began
	open      int64         // claims in flight when it began
	responses int64         // units that accepted requests have used since it began
	at        time.Time     // when it began; zero: there is none
	log       *sendLog      // used units, if kind is refillsEach and window is known; nil: not known
	window    time.Duration // time after which a unit comes back, if kind is refillsEach, 0: not known; length of the windows, if it is refillsNextWindow
}

// update infers what it can from a response that is newer than the state of e and of the same window.
// It was received now and states that left units are left until reset.
func (r *refill) update(e *estimate, left int64, reset, now time.Time, f *inFlight) {
	switch {
	case e.others.present || r.kind == refillsEach: // what other clients use looks like any refill
	case r.kind == refillsAtReset && left > e.remaining, r.kind == refillsNextWindow && left > e.mostLeft(now):
		r.slide(e, left, now)
	case r.contradicts(e, left, reset, now, f):
		r.kind = refillsAtReset
	}
	span := now.Sub(r.at)
	if r.kind != refillUnknown && r.kind != refillsEvenly || r.at.IsZero() || span < minLastUnitDelay {
		return
	}
	if r.kind == refillsEvenly && e.left(now) >= e.limit {
		r.restart() // the bucket may have been full: then no unit came back
		return
	}
	back := left - r.left + r.responses - r.open
	rate := max(float64(back)-1, 0.5) / span.Seconds() // left is stated in whole units: the last one may not be a whole one
	if back > 0 && (r.kind != refillsEvenly || span >= sureAfter || rate > r.rate) {
		r.kind, r.rate = refillsEvenly, rate
		if span >= renewAfter {
			r.restart()
		}
	}
}

// mostLeft returns how many units a sliding counter has left as of now at most, in the same window.
func (e *estimate) mostLeft(now time.Time) int64 {
	perSecond := float64(e.limit) / e.refill.window.Seconds()
	return e.remaining + int64(perSecond*now.Sub(e.at).Seconds()) + max(2, e.limit/20)
}

// slide records that e is a sliding log: units came back although its reset is as before. left units are
// left now.
func (r *refill) slide(e *estimate, left int64, now time.Time) {
	r.kind, r.window = refillsEach, cmp.Or(e.per, e.start.length)
	if r.window > 0 && !e.weighted {
		e.others, r.log = otherClients{}, newSendLog(now, e.limit-left)
	}
}

// contradicts reports whether much fewer units came back since the latest update of e than a token
// bucket restores that is full at reset, or than a sliding counter. A sliding log looks like a bucket for
// a moment, because units that were used in a burst come back in a burst.
func (r *refill) contradicts(e *estimate, left int64, reset, now time.Time, f *inFlight) bool {
	span := now.Sub(e.at)
	own := e.openAtUpdate + int64(f.sent-e.lastSent)
	if span < minLastUnitDelay || left+own >= e.limit {
		return false // it is too early, or the bucket may have been full
	}
	rate := float64(e.limit-left) / max(reset.Sub(now), span).Seconds()
	if r.kind == refillsNextWindow {
		rate = r.rate
	}
	return rate*span.Seconds() >= float64(2*max(left-e.remaining+own, 0)+2)
}

// begin begins a measurement if there is none, or if fewer claims are in flight now than when the
// present one began, so that the bound is closer.
func (r *refill) begin(left int64, now time.Time, open int64) {
	if r.at.IsZero() || open < r.open {
		r.left, r.open, r.responses, r.at = left, open, 0, now
	}
}

// restart ends the measurement.
func (r *refill) restart() { r.at = time.Time{} }

// observeReset infers what it can from the first response after the reset of e. It was received now and
// states that left units are left until reset. rough is the resolution of resets.
//
// A fixed window restores all that was used. A sliding counter restores it evenly until the next reset, so
// that nothing is left at first if all was used:
//
//	left                  ╱│         ╱
//	 │╲                  ╱ │       ╱      window: all but own requests
//	 │  ╲              ╱   │     ╱
//	 │    ╲__________ ╱    │   ╱          sliding counter
//	 └──────────────┴──────┴───────▶ time
//	              reset
func (r *refill) observeReset(e *estimate, left int64, reset, now time.Time, rough time.Duration, f *inFlight) {
	r.restart()
	window, windows := e.windowsUntil(reset)
	if window <= 0 || e.weighted || r.log != nil || e.reset.IsZero() || r.kind != refillsNextWindow && now.Before(e.reset) {
		return
	}
	used := float64(e.limit - e.left(e.reset))
	ahead := reset.Sub(e.reset)
	if ahead >= window+window/2 {
		used = 0 // all was used before the window before
	}
	own, slack := float64(e.openAtUpdate)+float64(f.sent-e.lastSent), float64(max(2, e.limit/20))
	restored := func(late time.Duration) float64 { // at the latest reset + late
		return float64(e.limit) - used*(1-min(max(late.Seconds()/window.Seconds(), 0), 1))
	}
	most, least := restored(now.Sub(e.reset)+rough)+slack, restored(now.Sub(e.reset)-rough)-own-slack
	switch distinct := float64(e.limit)-own > most; {
	case float64(left) > most && ahead.Abs() < tolerance && windows == 0 && r.kind <= refillsAtReset:
		r.slide(e, left, now)
		return
	case float64(left) > most:
		if r.together = true; r.kind == refillsNextWindow {
			r.kind = refillsAtReset
		}
		return
	case windows == 0 && used > 0:
		return
	case r.kind == refillsNextWindow:
	case !distinct || float64(left) < least || e.others.present:
		return
	case r.together:
		r.together = false
		return
	default:
		r.kind, r.window = refillsNextWindow, window
		e.others = otherClients{window: e.others.window}
	}
	r.rate = used / window.Seconds()
}

// rejectedOfCounter records that a request was rejected at now for which a sliding counter should have
// restored a unit. Soon after a reset, which is stated with the resolution rough, the reset was rounded down.
// Otherwise units come back in another way, or other clients use them.
func (e *estimate) rejectedOfCounter(rough time.Duration, now time.Time) {
	if e.refill.kind != refillsNextWindow {
		return
	}
	began := e.reset
	if now.Before(began) {
		began = began.Add(-e.refill.window)
	}
	if now.Sub(began) < rough && !e.refill.floor {
		e.refill.floor = true
		return
	}
	e.refill.kind, e.refill.together = refillsAtReset, true
}

// windowsUntil returns the length of the windows of e, and how many of them lie between its reset and
// the next one; 0 if that is not known.
func (e *estimate) windowsUntil(next time.Time) (length time.Duration, n int) {
	length = e.windowLength()
	if length <= 0 || e.counted.on {
		return 0, 0
	}
	ahead := next.Sub(e.reset)
	n = int((ahead + length/2) / length)
	if off := (ahead - time.Duration(n)*length).Abs(); ahead <= 0 || off > min(tolerance, length/4) {
		return length, 0
	}
	return length, n
}

// windowLength returns the length of the windows of e: as the server states it, or the usual length that
// agrees with the resets. It is 0 if nothing is known.
func (e *estimate) windowLength() time.Duration {
	if e.refill.kind == refillsNextWindow {
		return e.refill.window
	}
	return cmp.Or(e.per, e.start.length, lengthOf(e.others.window))
}

// counterDelay returns how long after its reset a probe of e is sent: a sliding counter has restored one
// unit then.
func (e *estimate) counterDelay() time.Duration {
	length := e.windowLength()
	used := e.limit - e.left(e.reset)
	if e.refill.together || e.refill.log != nil || e.weighted || e.counted.on || used <= 0 || e.others.present && e.refill.kind != refillsNextWindow {
		return 0
	}
	delay := length/time.Duration(used) + time.Microsecond
	if delay > min(length/counterDelayPart, maxCounterDelay) {
		return 0
	}
	return delay
}

// returned returns how many whole units of e came back since the latest update, as of now.
func (e *estimate) returned(now time.Time) int64 {
	r, missing := &e.refill, max(e.limit-e.remaining, 0)
	switch {
	case r.log != nil:
		return min(r.log.count(e.at.Add(-r.window), now.Add(-r.window)), missing)
	case r.kind == refillsEvenly:
		return int64(min(max(r.rate*now.Sub(e.at).Seconds(), 0), float64(missing)))
	case r.kind == refillsNextWindow:
		back := e.returnedUntilReset(now)
		if after := now.Sub(later(e.reset, e.at)); after > 0 {
			back += (float64(missing) - back) * min(after.Seconds()/r.window.Seconds(), 1)
		}
		return int64(back)
	}
	return 0
}

// returnedUntilReset returns how many units of a sliding counter came back since the latest update, as of
// now or the reset.
func (e *estimate) returnedUntilReset(now time.Time) float64 {
	if now.After(e.reset) {
		now = e.reset
	}
	return min(max(e.refill.rate*now.Sub(e.at).Seconds(), 0), float64(max(e.limit-e.remaining, 0)))
}

// firstReturn returns the earliest time later than after at which a unit of the log comes back. It is
// zero if there is none.
func (r *refill) firstReturn(after time.Time) time.Time {
	if r.log == nil {
		return time.Time{}
	}
	used := r.log.next(after.Add(-r.window))
	if used.IsZero() {
		return used
	}
	return used.Add(r.window)
}

// untilFree returns the time from now until one unit is free. units are free now, at most 0. It is 0 if no
// unit comes back before the reset.
func (e *estimate) untilFree(units int64, now time.Time) time.Duration {
	r := &e.refill
	if next := r.firstReturn(now); !next.IsZero() {
		return max(next.Sub(now), time.Millisecond)
	}
	var seconds float64                                  // from e.at
	whole := float64(e.returned(now)) + float64(1-units) // units may be any number that a server states
	switch {
	case r.kind == refillsEvenly && r.rate > 0:
		seconds = whole / r.rate
	case r.kind == refillsNextWindow:
		seconds = e.untilReturned(whole)
	default:
		return 0
	}
	seconds = min(seconds-now.Sub(e.at).Seconds(), maxDelay.Seconds())
	return max(time.Duration(seconds*1e9), time.Millisecond)
}

// untilReturned returns the seconds from the latest update until so many units of a sliding counter have come
// back, or all of them.
func (e *estimate) untilReturned(units float64) float64 {
	const margin = 1e-6 // for rounding
	r, back, missing := &e.refill, e.returnedUntilReset(e.reset), float64(e.limit-e.remaining)
	if units <= back {
		return units/r.rate + margin
	}
	return later(e.reset, e.at).Sub(e.at).Seconds() + min((units-back)/max(missing-back, 1e-9), 1)*r.window.Seconds() + margin
}
