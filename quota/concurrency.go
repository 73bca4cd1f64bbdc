package quota

import (
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
)

// concurrencyTest tells whether what is left counts requests in flight. Such units come back
// when an answer ends, not with time, so what is left and what is on its way add up
// to the same number all the time:
//
//	left        9   6   3   1   4   8
//	in flight   1   4   7   9   6   2
//	            └───┴── 10 ─┴───┘       of a window the sum would go down with
//	                                    each answer, and stay down
//
// Some servers say so in the name (Concurrency-Remaining), others do not. Of those a
// server that says when units come back, or that refuses what by this should have
// been granted, does not count slots.
type concurrencyTest struct {
	confirmed   bool  // they are
	named       bool  // the name says so
	excluded    bool  // they are not: somebody was refused
	fits        int64 // answers that fit, less those that do not
	least, most int64 // of what was in flight at these
	misfits     int   // answers in a row that do not fit
}

const (
	unitConcurrent = "concurrent_requests"
	minFits        = 8
	maxMisfits     = 8
)

// update takes over that left of limit are left while open claims are on their way,
// and reports whether these are slots. Of those on their way some had not arrived
// when the server counted, about a third at most.
func (s *concurrencyTest) update(limit, left, open int64) bool {
	if s.named || s.excluded {
		return s.named
	}
	if sum := left + open; sum < limit-1 || sum > limit+1+open/3 {
		s.fits /= 2
		if s.misfits++; s.misfits > maxMisfits {
			s.confirmed = false
		}
		return s.confirmed
	}
	if s.fits == 0 {
		s.least, s.most = open, open
	}
	s.fits, s.misfits = s.fits+1, 0
	s.least, s.most = min(s.least, open), max(s.most, open)
	s.confirmed = s.confirmed || s.fits >= minFits+s.most && s.most-s.least >= 3
	return s.confirmed
}

// concurrencyOf returns what the name of w says.
func concurrencyOf(w throttle.RemoteLimit) concurrencyTest {
	said := w.Unit == unitConcurrent
	return concurrencyTest{confirmed: said, named: said}
}

// updateConcurrency takes over what w says if t counts slots, and reports whether it does.
// What is kept as remaining is then how many requests may be in flight.
func (e *estimate) updateConcurrency(w throttle.RemoteLimit, now time.Time, f *inFlight) bool {
	was := e.concurrency.confirmed
	if !e.concurrency.named && (w.ResetAfter > 0 || w.Per > 0) {
		return false
	}
	if e.concurrency.update(w.Limit, max(w.Remaining, 0), f.open); !e.concurrency.confirmed {
		if was {
			e.refill, e.others, e.reset = refill{}, otherClients{}, now
		}
		return false
	}
	left := min(max(w.Remaining, 0), math.MaxInt64-f.open) // a server may say any number
	e.limit, e.remaining, e.per = max(w.Limit, w.Remaining), left+f.open, w.Per
	if w.Limit > 0 {
		e.remaining = min(e.remaining, w.Limit)
	}
	e.at, e.seen, e.reset, e.probe = now, f.sent, now.Add(concurrencyProbeAfter), false
	return true
}

// rejected notes that a request was refused.
func (s *concurrencyTest) rejected() {
	if s.confirmed && !s.named {
		*s = concurrencyTest{excluded: true}
	}
}

// slotWait is after what time one request asks whether others have given back the
// slots that they had all taken.
const concurrencyProbeAfter = time.Second

// freeConcurrency is free for slots: they come back with answers.
func (e *estimate) freeConcurrency(now time.Time, f *inFlight, use pacing) (units int64, wait time.Duration) {
	units = e.remaining - f.open - use.reserved(e.limit)
	if units > 0 || f.open > 0 {
		return max(units, 0), 0
	}
	if wait = e.reset.Sub(now); wait > 0 {
		return 0, wait
	}
	return 1, 0
}
