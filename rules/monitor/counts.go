package monitor

import (
	"math"
	"time"

	"github.com/heed-go/heed/sketch"
)

// Counts is what a Stats has counted. All are claims, whatever they cost, but for those
// that say otherwise.
type Counts struct {
	From, To time.Time // the readings of the first claim and of the last; zero: none was counted

	Allowed   int64 // granted, with all of the following that are said to be
	Refused   int64
	OverLimit int64 // granted beyond a soft limit, or lent
	Shadowed  int64 // granted, and would have been refused but for a shadow
	Degraded  int64 // granted or refused without the primary limiter
	Cancelled int64 // granted and not used
	Undecided int64 // neither granted nor refused, because of an error

	// Returned are streaks of refusals of one key that ended in a grant soon enough,
	// Abandoned those that did not. What nobody can know yet is neither.
	Returned, Abandoned int64

	Demand Demand
}

// Decided returns how many claims were decided.
func (c Counts) Decided() int64 { return c.Allowed + c.Refused }

// RefusedShare returns which part of the claims that were decided was refused, or would
// have been but for a shadow.
func (c Counts) RefusedShare() float64 { return share(c.Refused+c.Shadowed, c.Decided()) }

// ReturnedShare returns in which part of the cases somebody who was refused was granted
// something afterwards. Of those whom a limit only makes to slow down, that is most.
func (c Counts) ReturnedShare() float64 { return share(c.Returned, c.Returned+c.Abandoned) }

func share(n, of int64) float64 { return float64(n) / float64(max(of, 1)) }

func (c *Counts) plus(o Counts) {
	c.Allowed += o.Allowed
	c.Refused += o.Refused
	c.OverLimit += o.OverLimit
	c.Shadowed += o.Shadowed
	c.Degraded += o.Degraded
	c.Cancelled += o.Cancelled
	c.Undecided += o.Undecided
	c.Returned += o.Returned
	c.Abandoned += o.Abandoned
}

// Snapshot returns what was counted until now, all of it as of one instant.
func (t *Stats) Snapshot() (n Counts) {
	t.once.Do(t.setup)
	t.lock()
	defer t.unlock()
	seen := new(sessionTotals)
	if t.finished != nil {
		*seen = *t.finished
	}
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	for i := range t.shards {
		s := &t.shards[i]
		n.plus(s.counts)
		if s.counts.Decided() > 0 {
			first, last = min(first, s.first), max(last, s.last)
		}
	}
	for i := range t.shards {
		t.shards[i].addActive(&n, seen, last)
	}
	if n.Decided() > 0 {
		n.From, n.To = t.timeOf(first), t.timeOf(last)
	}
	n.Demand = seen.demand()
	return n
}

// timeOf is the inverse of read. Its readings are of the wall clock, for those who print them.
func (t *Stats) timeOf(ns int64) time.Time { return t.start.Add(time.Duration(ns)).Round(0) }

// addActive adds the visits that are not over, and streaks that are as of last.
func (s *shard) addActive(n *Counts, seen *sessionTotals, last int64) {
	for i := range s.sessions.slots {
		v := &s.sessions.slots[i].record
		if v.inStreak && v.streakExpired(last) {
			n.Abandoned++
		}
		if v.refused {
			seen.add(v)
		}
	}
}

// Reset forgets all that was counted. What is left of visits is followed on.
func (t *Stats) Reset() {
	t.once.Do(t.setup)
	t.lock()
	defer t.unlock()
	t.finished = nil
	t.top.Store(sketch.NewTopK(orElse(t.TopKeys, 128)))
	for i := range t.shards {
		s := &t.shards[i]
		s.counts = Counts{}
		for j := range s.sessions.slots {
			s.sessions.slots[j].record.resetTotals()
		}
	}
}

func (t *Stats) lock() {
	for i := range t.shards {
		t.shards[i].mu.Lock()
	}
	t.mu.Lock()
}

func (t *Stats) unlock() {
	t.mu.Unlock()
	for i := range t.shards {
		t.shards[i].mu.Unlock()
	}
}
