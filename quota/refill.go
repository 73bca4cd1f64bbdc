package quota

import (
	"cmp"
	"math"
	"time"
)

// A refillKind is how the units of a server limit come back.
type refillKind uint8

const (
	refillUnknown  refillKind = iota // not known yet
	refillsAtReset                   // all together, at the reset: a fixed window
	refillsEvenly                    // at a constant rate: a token bucket
	refillsEach                      // each a fixed time after it was used: a sliding log
)

const (
	sureAfter  = time.Second      // a rate that was measured for so long replaces a higher one
	renewAfter = 10 * time.Second // time after which a measurement of the rate begins again
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
	rate      float64       // units per second, if kind is refillsEvenly
	left      int64         // units left when the measurement began
	open      int64         // claims in flight when it began
	responses int64         // units that accepted requests have used since it began
	at        time.Time     // when it began; zero: there is none
	log       *sendLog      // used units, if kind is refillsEach and window is known; nil: not known
	window    time.Duration // time after which a unit comes back, if kind is refillsEach; 0: not known
}

// update infers what it can from a response that is newer than the state of e and of the same window.
// It was received now and states that left units are left until reset.
func (r *refill) update(e *estimate, left int64, reset, now time.Time, f *inFlight) {
	switch {
	case e.others.present || r.kind == refillsEach: // what other clients use looks like any refill
	case r.kind == refillsAtReset && left > e.remaining:
		r.kind, r.window = refillsEach, cmp.Or(e.per, e.start.length)
		if r.window > 0 && !e.weighted {
			e.others, r.log = otherClients{}, newSendLog(now, e.limit-left)
		}
	case r.contradicts(e, left, reset, now, f):
		r.kind = refillsAtReset
	}
	span := now.Sub(r.at)
	if r.kind == refillsAtReset || r.kind == refillsEach || r.at.IsZero() || span < minLastUnitDelay {
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

// contradicts reports whether much fewer units came back since the latest update of e than a token
// bucket restores that is full at reset. A sliding log looks like a bucket for a moment, because units
// that were used in a burst come back in a burst.
func (r *refill) contradicts(e *estimate, left int64, reset, now time.Time, f *inFlight) bool {
	span := now.Sub(e.at)
	own := e.openAtUpdate + int64(f.sent-e.lastSent)
	if span < minLastUnitDelay || left+own >= e.limit {
		return false // it is too early, or the bucket may have been full
	}
	rate := float64(e.limit-left) / max(reset.Sub(now), span).Seconds()
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

// returned returns how many whole units came back between at and now, at most missing.
func (r *refill) returned(at, now time.Time, missing int64) int64 {
	if r.log != nil {
		return min(r.log.count(at.Add(-r.window), now.Add(-r.window)), max(missing, 0))
	}
	if r.kind != refillsEvenly {
		return 0
	}
	return int64(min(max(r.rate*now.Sub(at).Seconds(), 0), float64(max(missing, 0))))
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

// until returns the time from now until one unit is free. units are free now, at most 0, of those left
// at the time at. It is 0 if the refill does not restore units before the reset.
func (r *refill) until(units int64, at, now time.Time) time.Duration {
	if next := r.firstReturn(now); !next.IsZero() {
		return max(next.Sub(now), time.Millisecond)
	}
	if r.kind != refillsEvenly || r.rate <= 0 {
		return 0
	}
	passed := now.Sub(at).Seconds()
	whole := math.Floor(r.rate*passed) + float64(1-units)
	seconds := min(whole/r.rate-passed, maxDelay.Seconds()) // units may be any number that a server states
	return max(time.Duration(seconds*1e9), time.Millisecond)
}
