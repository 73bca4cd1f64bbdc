package quota

import (
	"math"
	"time"
)

// refillKind is how units come back to a limit of the server.
type refillKind uint8

const (
	unseen refillKind = iota // not known yet
	steps                    // all at once, at the reset
	flows                    // evenly
	drips                    // neither: each some time after it was taken, as in a sliding log
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
	kind     refillKind
	rate     float64 // units a second, if kind is flows
	left     int64   // at the mark
	open     int64
	answered int64
	at       time.Time // of the mark; zero: none
}

// learn draws what it can from an answer that is newer than the mark and of the
// same window, and says that left units are left of t until reset.
func (r *refill) learn(t *told, left int64, reset, now time.Time, f *flight) {
	switch {
	case t.others.seen || r.kind == drips: // what others do looks like anything
	case r.kind == steps && left > t.remaining:
		r.kind = drips
	case r.contradicts(t, left, reset, now, f):
		r.kind = steps
	}
	span := now.Sub(r.at)
	if r.kind == steps || r.kind == drips || r.at.IsZero() || span < minScout {
		return
	}
	if r.kind == flows && t.left(now) >= t.limit {
		r.restart() // it may have been full, and then nothing came back
		return
	}
	back := left - r.left + r.answered - r.open
	// What is left is told in whole units, so up to one of those may not be whole.
	rate := max(float64(back)-1, 0.5) / span.Seconds()
	if back > 0 && (r.kind != flows || span >= sureAfter || rate > r.rate) {
		r.kind, r.rate = flows, rate
		if span >= renewAfter {
			r.restart()
		}
	}
}

// contradicts reports whether much less came back since the last answer than would
// have done so into a bucket: its reset would be when it is full. A sliding log looks
// like a bucket for a moment, as what was taken in a burst comes back in one.
func (r *refill) contradicts(t *told, left int64, reset, now time.Time, f *flight) bool {
	span := now.Sub(t.at)
	ours := t.open + int64(f.sent-t.seen)
	if span < minScout || left+ours >= t.limit {
		return false // too soon to tell, or it may have been full, and then nothing came back
	}
	flow := float64(t.limit-left) / max(reset.Sub(now), span).Seconds()
	return flow*span.Seconds() >= float64(2*max(left-t.remaining+ours, 0)+2)
}

// mark begins a measurement where there is none, or where this moment leaves
// less in doubt than the present mark.
func (r *refill) mark(left int64, now time.Time, open int64) {
	if r.at.IsZero() || open < r.open {
		r.left, r.open, r.answered, r.at = left, open, 0, now
	}
}

// refused lowers a rate that was too high.
func (r *refill) refused() {
	r.rate *= 0.9
	r.restart()
}

func (r *refill) restart() { r.at = time.Time{} }

// since returns how many whole units have come back between at and now, at most
// room.
func (r *refill) since(at, now time.Time, room int64) int64 {
	if r.kind != flows {
		return 0
	}
	return int64(min(max(r.rate*now.Sub(at).Seconds(), 0), float64(max(room, 0))))
}

// until returns how long after now one unit is free, of which there are units
// now; 0: not by flowing back.
func (r *refill) until(units int64, at, now time.Time) time.Duration {
	if r.kind != flows || r.rate <= 0 {
		return 0
	}
	passed := now.Sub(at).Seconds()
	whole := math.Floor(r.rate*passed) + float64(1-units)
	seconds := min(whole/r.rate-passed, maxDelay.Seconds()) // what a server says may be any number
	return max(time.Duration(seconds*1e9), time.Millisecond)
}
