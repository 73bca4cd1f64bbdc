package quota

import (
	"math"
	"time"

	"github.com/heed-go/heed/throttle"
)

// slots tells whether what is left counts requests in flight. Such units come back
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
type slots struct {
	are         bool  // they are
	said        bool  // the name says so
	never       bool  // they are not: somebody was refused
	n           int64 // answers that fit, less those that do not
	least, most int64 // of what was in flight at these
	misfits     int   // answers in a row that do not fit
}

const (
	concurrency = "concurrent_requests"
	enoughFits  = 8
	mostMisfits = 8
)

// learn takes over that left of limit are left while open claims are on their way,
// and reports whether these are slots. Of those on their way some had not arrived
// when the server counted, about a third at most.
func (s *slots) learn(limit, left, open int64) bool {
	if s.said || s.never {
		return s.said
	}
	if sum := left + open; sum < limit-1 || sum > limit+1+open/3 {
		s.n /= 2
		if s.misfits++; s.misfits > mostMisfits {
			s.are = false
		}
		return s.are
	}
	if s.n == 0 {
		s.least, s.most = open, open
	}
	s.n, s.misfits = s.n+1, 0
	s.least, s.most = min(s.least, open), max(s.most, open)
	s.are = s.are || s.n >= enoughFits+s.most && s.most-s.least >= 3
	return s.are
}

// slotsOf returns what the name of w says.
func slotsOf(w throttle.RemoteLimit) slots {
	said := w.Unit == concurrency
	return slots{are: said, said: said}
}

// takeSlots takes over what w says if t counts slots, and reports whether it does.
// What is kept as remaining is then how many requests may be in flight.
func (t *told) takeSlots(w throttle.RemoteLimit, now time.Time, f *flight) bool {
	was := t.slots.are
	if !t.slots.said && (w.ResetAfter > 0 || w.Per > 0) {
		return false
	}
	if t.slots.learn(w.Limit, max(w.Remaining, 0), f.open); !t.slots.are {
		if was {
			t.refill, t.others, t.reset = refill{}, others{}, now
		}
		return false
	}
	left := min(max(w.Remaining, 0), math.MaxInt64-f.open) // a server may say any number
	t.limit, t.remaining, t.per = max(w.Limit, w.Remaining), left+f.open, w.Per
	if w.Limit > 0 {
		t.remaining = min(t.remaining, w.Limit)
	}
	t.at, t.seen, t.reset, t.probe = now, f.sent, now.Add(slotWait), false
	return true
}

// refuted notes that a request was refused.
func (s *slots) refuted() {
	if s.are && !s.said {
		*s = slots{never: true}
	}
}

// slotWait is after what time one request asks whether others have given back the
// slots that they had all taken.
const slotWait = time.Second

// freeSlots is free for slots: they come back with answers.
func (t *told) freeSlots(now time.Time, f *flight, use use) (units int64, wait time.Duration) {
	units = t.remaining - f.open - use.kept(t.limit)
	if units > 0 || f.open > 0 {
		return max(units, 0), 0
	}
	if wait = t.reset.Sub(now); wait > 0 {
		return 0, wait
	}
	return 1, 0
}
