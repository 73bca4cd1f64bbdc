package model

import "time"

// A roundTrip measures the typical time from a claim to its response: one claim at a time is watched.
type roundTrip struct {
	watched uint64 // 0: none
	sent    time.Time
	typical time.Duration // 0: not known
}

const (
	unknownTrip = 50 * time.Millisecond // before the first response
	leastTrip   = time.Millisecond
	tripWeight  = 8 // one in so many of a difference is applied
)

// granted watches claim n, which is granted now, if none is watched.
func (r *roundTrip) granted(n uint64, now time.Time) {
	if r.watched == 0 {
		r.watched, r.sent = n, now
	}
}

// ended applies that claim n has ended. responded reports whether by a response.
func (r *roundTrip) ended(n uint64, responded bool, now time.Time) {
	if n != r.watched {
		return
	}
	r.watched = 0
	if took := max(now.Sub(r.sent), 1); responded {
		if r.typical == 0 {
			r.typical = took
		}
		r.typical += (took - r.typical) / tripWeight
	}
}

// Typical returns the typical time.
func (r *roundTrip) Typical() time.Duration {
	if r.typical == 0 {
		return unknownTrip
	}
	return max(r.typical, leastTrip)
}

// bounded returns the typical time within the bounds that learned limits use.
func (r *roundTrip) bounded() time.Duration { return min(r.Typical(), 250*time.Millisecond) }
