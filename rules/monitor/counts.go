package monitor

import (
	"math"
	"time"

	"github.com/heed-go/heed/sketch"
)

// Counts is a snapshot of a Stats. All counts are numbers of claims, regardless of their cost,
// except where stated otherwise.
type Counts struct {
	// From and To are the times of the first and the last claim. Zero means that no claim was
	// counted.
	From, To time.Time

	// Allowed counts granted claims, including those of OverLimit, Shadowed and Cancelled and the
	// granted ones of Degraded. Rejected counts rejected claims.
	Allowed  int64
	Rejected int64

	// OverLimit counts claims granted beyond a soft limit, or by borrowing.
	OverLimit int64

	// Shadowed counts granted claims that would have been rejected without shadow mode.
	Shadowed int64

	// Degraded counts claims granted or rejected without the primary limiter.
	Degraded int64

	// Cancelled counts granted claims that were not used.
	Cancelled int64

	// Undecided counts claims that were neither granted nor rejected, because of an error.
	Undecided int64

	// Returned counts streaks of rejections of one key that ended in a grant within
	// Stats.ReturnWithin, Abandoned streaks that did not. Streaks that may still end in a grant
	// are in neither.
	Returned, Abandoned int64

	// Demand is what rejected keys asked for. It is zero without Stats.Limit.
	Demand Demand
}

// Decided returns the number of claims that were granted or rejected.
func (c Counts) Decided() int64 { return c.Allowed + c.Rejected }

// RejectedShare returns the share of the decided claims that were rejected, or would have been
// without shadow mode. It is between 0 and 1.
func (c Counts) RejectedShare() float64 { return share(c.Rejected+c.Shadowed, c.Decided()) }

// ReturnedShare returns the share of streaks of rejections that ended in a grant, between 0 and 1.
// It is high for a limit that only slows clients down.
func (c Counts) ReturnedShare() float64 { return share(c.Returned, c.Returned+c.Abandoned) }

func share(n, of int64) float64 { return float64(n) / float64(max(of, 1)) }

func (c *Counts) plus(o Counts) {
	c.Allowed += o.Allowed
	c.Rejected += o.Rejected
	c.OverLimit += o.OverLimit
	c.Shadowed += o.Shadowed
	c.Degraded += o.Degraded
	c.Cancelled += o.Cancelled
	c.Undecided += o.Undecided
	c.Returned += o.Returned
	c.Abandoned += o.Abandoned
}

// Snapshot returns the current counts. They are consistent: all of them are taken at the same
// time.
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

// timeOf is the inverse of nanos. The result has no monotonic reading, so that it prints as wall
// time.
func (t *Stats) timeOf(ns int64) time.Time { return t.start.Add(time.Duration(ns)).Round(0) }

// addActive adds the sessions that have not ended, and the streaks that are abandoned at last.
func (s *shard) addActive(n *Counts, seen *sessionTotals, last int64) {
	for i := range s.sessions.slots {
		v := &s.sessions.slots[i].record
		if v.inStreak && v.streakExpired(last) {
			n.Abandoned++
		}
		if v.rejected {
			seen.add(v)
		}
	}
}

// Reset clears all counts. Sessions that have not ended are continued.
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
