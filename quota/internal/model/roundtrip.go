package model

import "time"

// A roundTrip measures the typical time from a claim to its response: one claim at a time is watched. A single response that takes
// longer shows nothing, so of two in a row the shorter one counts.
type roundTrip struct {
	watched uint64 // 0: none
	sent    time.Time
	typical time.Duration // 0: not known
	latest  time.Duration // of the latest response
	n       int8          // responses, at most tripWeight
}

const (
	unknownTrip = 50 * time.Millisecond // before the first response
	leastTrip   = time.Millisecond
	tripWeight  = 8 // one in so many of a difference is applied, or of the first responses their mean
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
		seen := took
		if r.n > 0 {
			seen = min(took, max(r.latest, r.typical))
		}
		r.n, r.latest = min(r.n+1, tripWeight), took
		r.typical += (seen - r.typical) / time.Duration(r.n)
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
