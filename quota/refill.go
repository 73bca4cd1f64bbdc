package quota

import (
	"cmp"
	"math"
	"time"
)

// refillKind is how units come back to a limit of the server.
type refillKind uint8

const (
	refillUnknown  refillKind = iota // not known yet
	refillsAtReset                   // all at once, at the reset
	refillsEvenly                    // evenly
	refillsEach                      // neither: each some time after it was taken, as in a sliding log
)

const (
	sureAfter  = time.Second      // a rate seen for so long is believed even if it is lower than before
	renewAfter = 10 * time.Second // and then measured anew
)

// A refill is what is known of how units come back. It measures from a mark, a
// moment at which it was known how many were left:
//
//	came back >= left now - left then + answers since - open then
//
// The claims that were open at the mark may have been counted before it or after
// it. Counting them all as before makes this a lower bound, and so the rate too.
type refill struct {
	kind      refillKind
	rate      float64 // units a second, if kind is flows
	left      int64   // at the mark
	open      int64
	responses int64
	at        time.Time     // of the mark; zero: none
	log       *sendLog      // if kind is refillsEach and window is known; nil: none
	window    time.Duration // after which a unit comes back, if kind is refillsEach; 0: not known
}

// update draws what it can from an answer that is newer than the mark and of the
// same window, and says that left units are left of t until reset.
func (r *refill) update(e *estimate, left int64, reset, now time.Time, f *inFlight) {
	switch {
	case e.others.present || r.kind == refillsEach: // what others do looks like anything
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
		r.restart() // it may have been full, and then nothing came back
		return
	}
	back := left - r.left + r.responses - r.open
	// What is left is told in whole units, so up to one of those may not be whole.
	rate := max(float64(back)-1, 0.5) / span.Seconds()
	if back > 0 && (r.kind != refillsEvenly || span >= sureAfter || rate > r.rate) {
		r.kind, r.rate = refillsEvenly, rate
		if span >= renewAfter {
			r.restart()
		}
	}
}

// contradicts reports whether much less came back since the last answer than would
// have done so into a bucket: its reset would be when it is full. A sliding log looks
// like a bucket for a moment, as what was taken in a burst comes back in one.
func (r *refill) contradicts(e *estimate, left int64, reset, now time.Time, f *inFlight) bool {
	span := now.Sub(e.at)
	ours := e.openThen + int64(f.sent-e.seen)
	if span < minLastUnitDelay || left+ours >= e.limit {
		return false // too soon to tell, or it may have been full, and then nothing came back
	}
	flow := float64(e.limit-left) / max(reset.Sub(now), span).Seconds()
	return flow*span.Seconds() >= float64(2*max(left-e.remaining+ours, 0)+2)
}

// begin begins a measurement where there is none, or where this moment leaves
// less in doubt than the present mark.
func (r *refill) begin(left int64, now time.Time, open int64) {
	if r.at.IsZero() || open < r.open {
		r.left, r.open, r.responses, r.at = left, open, 0, now
	}
}

// refused lowers a rate that was too high.
func (r *refill) refused() {
	r.rate *= 0.9
	r.restart()
}

func (r *refill) restart() { r.at = time.Time{} }

// returned returns how many whole units have come back between at and now, at most
// room.
func (r *refill) returned(at, now time.Time, room int64) int64 {
	if r.log != nil {
		return min(r.log.count(at.Add(-r.window), now.Add(-r.window)), max(room, 0))
	}
	if r.kind != refillsEvenly {
		return 0
	}
	return int64(min(max(r.rate*now.Sub(at).Seconds(), 0), float64(max(room, 0))))
}

// firstReturn returns when the first unit comes back after a time, according to the log; zero: the
// log does not tell.
func (r *refill) firstReturn(after time.Time) time.Time {
	if r.log == nil {
		return time.Time{}
	}
	taken := r.log.next(after.Add(-r.window))
	if taken.IsZero() {
		return taken
	}
	return taken.Add(r.window)
}

// until returns how long after now one unit is free, of which there are units
// now; 0: not by flowing back.
func (r *refill) until(units int64, at, now time.Time) time.Duration {
	if next := r.firstReturn(now); !next.IsZero() {
		return max(next.Sub(now), time.Millisecond)
	}
	if r.kind != refillsEvenly || r.rate <= 0 {
		return 0
	}
	passed := now.Sub(at).Seconds()
	whole := math.Floor(r.rate*passed) + float64(1-units)
	seconds := min(whole/r.rate-passed, maxDelay.Seconds()) // what a server says may be any number
	return max(time.Duration(seconds*1e9), time.Millisecond)
}
