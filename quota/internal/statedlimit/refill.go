package statedlimit

import (
	"math"
	"time"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/quota/internal/inflight"
)

// A refillKind is how the units of a server limit come back.
type refillKind uint8

const (
	refillUnknown     refillKind = iota // not known yet
	refillsAtReset                      // all together, at the reset: a fixed window
	refillsEvenly                       // at a constant rate: a token bucket
	refillsOneByOne                     // some before the reset, at times that are not known: a sliding log
	refillsNextWindow                   // evenly, during the window after the one in which they were used: a sliding counter
)

const (
	sureAfter  = time.Second      // a rate that was measured for so long replaces a higher one
	renewAfter = 10 * time.Second // time after which a measurement of the rate begins again, if there are
	renewUnits = 20               // so many units in it: with fewer, the one that may not be a whole one makes it too low
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
	part      float64       // of the next unit, that had come back at the latest update, if kind is refillsEvenly
	together  bool          // at the latest reset more came back than of a sliding counter
	floor     bool          // the resets of a sliding counter are rounded down
	window    time.Duration // length of the windows of a sliding counter, also once kind is another one; 0: it was never taken for one
	left      int64         // units left when the measurement began
	open      int64         // claims in flight when it began
	responses int64         // units that accepted requests have used since it began
	at        time.Time     // when it began; zero: there is none
}

// update infers what it can from a response that is newer than the state of e and of the same window.
// It was received now and states that left units are left until reset, or earlier.
func (r *refill) update(e *Estimate, left int64, reset, now time.Time, f *inflight.Claims) {
	switch {
	case r.kind != refillsEvenly && !e.untimed && left+e.sinceUpdate(f) >= e.Limit:
		r.restart() // all units may have come back together
		return
	case r.kind == refillsOneByOne: // what comes back looks like any other kind
	case r.kind == refillsAtReset && left > e.Remaining, r.kind == refillsNextWindow && left > e.mostOfCounter(now):
		r.kind = refillsOneByOne
	case !e.rate.known() && r.contradicts(e, left, reset, now, f):
		r.kind = refillsAtReset
	}
	span := now.Sub(r.at)
	if r.kind != refillUnknown && r.kind != refillsEvenly || r.at.IsZero() || span < minMeasured {
		return
	}
	if r.kind == refillsEvenly && e.Left(now) >= e.Limit {
		r.restart() // the bucket may have been full: then no unit came back
		return
	}
	back := left - r.left + r.responses - r.open
	rate := e.rate.bound(max(float64(back)-1, 0.5) / span.Seconds()) // left is stated in whole units: the last one may not be a whole one
	if r.kind == refillsEvenly && span >= sureAfter || back > 0 && (r.kind != refillsEvenly || rate > r.rate) {
		r.kind, r.rate = refillsEvenly, rate
		if span >= renewAfter && back >= renewUnits {
			r.restart()
		}
	}
}

// contradicts reports whether much fewer units came back since the latest update of e than a token
// bucket restores that is full at reset, or than a sliding counter. A sliding log looks like a bucket for
// a moment, because units that were used in a burst come back in a burst. A bucket may be full with fewer units than its
// limit, at most with those that it has stated.
func (r *refill) contradicts(e *Estimate, left int64, reset, now time.Time, f *inflight.Claims) bool {
	span := now.Sub(e.At)
	own := e.sinceUpdate(f)
	if e.untimed || span < minMeasured || left+own >= e.highest {
		return false // the server states no reset, it is too early, or the bucket may have been full
	}
	rate := float64(e.Limit-left) / max(reset.Sub(now), span).Seconds()
	if r.kind == refillsNextWindow {
		rate = r.rate
	}
	return rate*span.Seconds() >= float64(2*max(left-e.Remaining+own, 0)+2)
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

// returned returns how many whole units of e came back since the latest update, as of now.
func (e *Estimate) returned(now time.Time) int64 {
	switch e.refill.kind {
	case refillsEvenly:
		return int64(min(max(e.refilled(now), 0), float64(max(e.Limit-e.Remaining, 0))))
	case refillsNextWindow:
		return int64(e.returnedOfCounter(now))
	}
	return 0
}

// refilled returns how many units came back to a bucket since the latest update, as of now.
func (e *Estimate) refilled(now time.Time) float64 {
	return e.refill.part + e.refill.rate*now.Sub(e.At).Seconds()
}

// partAt returns the part of the next unit of a bucket that has come back at now, when the response to a claim states that left units are
// left. It is 0 if these are not as many as expected: then it is not known.
func (e *Estimate) partAt(left int64, rejected bool, now time.Time, f *inflight.Claims) float64 {
	used, least, most := float64(e.Remaining-left)+e.refilled(now), 1., float64(e.sinceUpdate(f)) // since the latest update
	if rejected {
		least, most = 0, most-1
	}
	if e.refill.kind != refillsEvenly || used < least || used >= most+1 || e.Left(now) >= e.Limit {
		return 0
	}
	return used - math.Floor(used)
}

// UntilFree returns the time from now until one unit is free, if units are free now, at most 0. It is 0 if it
// does not come back before the reset, or is in flight.
func (e *Estimate) UntilFree(units int64, now time.Time) time.Duration {
	r := &e.refill
	var seconds float64 // from e.At
	switch {
	case r.kind == refillsEvenly && r.rate > 0:
		seconds = (math.Floor(e.refilled(now)) + float64(1-units) - r.part) / r.rate // units may be any number that a server states
	case r.kind == refillsNextWindow && e.returned(now)+1-units <= e.Limit-e.Remaining:
		seconds = e.untilReturned(float64(e.returned(now) + 1 - units))
	default:
		return 0
	}
	seconds = min(seconds-now.Sub(e.At).Seconds(), headers.MaxDelay.Seconds())
	return max(time.Duration(seconds*1e9), time.Millisecond)
}
