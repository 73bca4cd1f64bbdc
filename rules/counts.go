package rules

import (
	"math"
	"time"

	"github.com/heed-go/heed/sketch"
)

// Counts is what a Tally has counted. All are claims, whatever they cost, but for those
// that say otherwise.
type Counts struct {
	From, To time.Time // the readings of the first claim and of the last; zero: none was counted

	Allowed   int64 // granted, with all of the following that are said to be
	Refused   int64
	Over      int64 // granted beyond a soft limit, or lent
	Shadowed  int64 // granted, and would have been refused but for a shadow
	Degraded  int64 // granted or refused without the primary limiter
	Cancelled int64 // granted and not used
	Undecided int64 // neither granted nor refused, because of an error

	// Returned are streaks of refusals of one key that ended in a grant soon enough,
	// GaveUp those that did not. What nobody can know yet is neither.
	Returned, GaveUp int64

	Demand Demand
}

// Asked returns how many claims were decided.
func (c Counts) Asked() int64 { return c.Allowed + c.Refused }

// RefusedShare returns which part of the claims that were decided was refused, or would
// have been but for a shadow.
func (c Counts) RefusedShare() float64 { return share(c.Refused+c.Shadowed, c.Asked()) }

// ReturnedShare returns in which part of the cases somebody who was refused was granted
// something afterwards. Of those whom a limit only makes to slow down, that is most.
func (c Counts) ReturnedShare() float64 { return share(c.Returned, c.Returned+c.GaveUp) }

func share(n, of int64) float64 { return float64(n) / float64(max(of, 1)) }

func (c *Counts) plus(o Counts) {
	c.Allowed += o.Allowed
	c.Refused += o.Refused
	c.Over += o.Over
	c.Shadowed += o.Shadowed
	c.Degraded += o.Degraded
	c.Cancelled += o.Cancelled
	c.Undecided += o.Undecided
	c.Returned += o.Returned
	c.GaveUp += o.GaveUp
}

// Snapshot returns what was counted until now, all of it as of one instant.
func (t *Tally) Snapshot() (n Counts) {
	t.once.Do(t.begin)
	t.lock()
	defer t.unlock()
	seen := new(visits)
	if t.past != nil {
		*seen = *t.past
	}
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for i := range t.stripes {
		s := &t.stripes[i]
		n.plus(s.counts)
		if s.counts.Asked() > 0 {
			first, last = min(first, s.first), max(last, s.last)
		}
	}
	for i := range t.stripes {
		t.stripes[i].look(&n, seen, last)
	}
	if n.Asked() > 0 {
		n.From, n.To = t.at(first), t.at(last)
	}
	n.Demand = seen.demand()
	return n
}

// at is the inverse of read. Its readings are of the wall clock, for those who print them.
func (t *Tally) at(ns int64) time.Time { return t.start.Add(time.Duration(ns)).Round(0) }

// look adds the visits that are not over, and streaks that are as of last.
func (s *stripe) look(n *Counts, seen *visits, last int64) {
	for i := range s.visits.slots {
		v := &s.visits.slots[i].record
		if v.waiting && v.tooLate(last) {
			n.GaveUp++
		}
		if v.refused {
			seen.add(v)
		}
	}
}

// Reset forgets all that was counted. What is left of visits is followed on.
func (t *Tally) Reset() {
	t.once.Do(t.begin)
	t.lock()
	defer t.unlock()
	t.past = nil
	t.top.Store(sketch.NewTop(orElse(t.Top, 128)))
	for i := range t.stripes {
		s := &t.stripes[i]
		s.counts = Counts{}
		for j := range s.visits.slots {
			s.visits.slots[j].record.forget()
		}
	}
}

func (t *Tally) lock() {
	for i := range t.stripes {
		t.stripes[i].mu.Lock()
	}
	t.mu.Lock()
}

func (t *Tally) unlock() {
	t.mu.Unlock()
	for i := range t.stripes {
		t.stripes[i].mu.Unlock()
	}
}
