package throttle

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sort"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A SlidingLogConfig configures NewSlidingLog. Burst must be 0 or Count.
type SlidingLogConfig struct {
	Limit Limit

	// MinGap is the minimum time between two claims, at most Per. Zero means none.
	MinGap time.Duration

	// CountRejected makes rejected claims without Claim.Waits count like granted ones: a caller
	// that asks faster than the limit is rejected until it pauses.
	CountRejected bool
}

// Validate returns an error that states the invalid field if l is invalid.
func (l SlidingLogConfig) Validate() error {
	if l.MinGap < 0 || l.MinGap > l.Limit.Per {
		return fmt.Errorf("throttle: sliding log %q: MinGap is %v: it must lie between 0 and Per: for a longer one, allow 1 per MinGap", l.Limit.Name, l.MinGap)
	}
	return cmp.Or(l.Limit.checkNoBurst("sliding log"), l.Limit.Validate())
}

type slidingLog struct {
	base    // last is the latest reading recorded in the log
	config  SlidingLogConfig
	entries entries
}

// NewSlidingLog returns a limiter that records each unit until it is Per old. It is exact: in no
// span of length Per are more than Count units granted.
//
//	               |<------ Per ------>|
//	───┴──────┴────(──────┴──┴─────┴───]────▶ time
//	 expired expired ▲    3 in the log  now
//	               a claim exactly here has expired as well
//
// Claims at the same instant share an entry. Entries contain running totals, so that a
// decision is one binary search. Their memory grows as needed, up to Count entries, and does
// not shrink.
//
// SetLimit replaces Count and Per, and keeps the log. If Per increases, entries that have been
// dropped are not restored.
//
// It panics if l is invalid.
func NewSlidingLog(l SlidingLogConfig) Adjustable {
	must(l.Validate(), "NewSlidingLog")
	return &slidingLog{base: newBase(ticks.NewTimeline(), policyOf(l.Limit.Name, l.Limit)), config: l}
}

func (s *slidingLog) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n, now, err := s.begin(&c, &d)
	if err != nil {
		return d, err
	}
	defer s.mu.Unlock()
	d.Limit, d.Per, d.Wait = s.config.Limit.Count, s.config.Limit.Per, s.wait(n, now)
	d.OK = d.Wait == 0
	// With CountRejected, a rejected claim enters a full log and replaces the oldest units:
	// while these would count, so do all of the Count units that are newer.
	if !c.DryRun && (d.OK || s.config.CountRejected && !c.Waits) {
		s.record(n, now)
		d.Grant = uint64(now)
		if !d.OK {
			d.Wait = s.wait(n, now)
		}
	}
	d.Remaining = max(s.config.Limit.Count-s.entries.unitsAfter(s.expired(now)), 0)
	if last := s.entries.len() - 1; last >= 0 {
		d.ResetAfter = s.left(last, s.config.Limit.Per, now)
	}
	d.setFresh(&c)
	return d, nil
}

// Report implements Limiter: it corrects the cost of the claim, unless its entry has expired.
func (s *slidingLog) Report(_ context.Context, c Claim, d Decision, f Feedback) {
	s.correct(c, d, f, func(extra, _ int64) {
		i := s.entries.countUntil(int64(d.Grant)) - 1
		if i >= 0 && s.entries.at(i).at == int64(d.Grant) {
			s.entries.change(i, extra)
		}
	})
}

func (s *slidingLog) Traits() Traits {
	return Traits{NonBlocking: true, EndsAtResponse: true, CountsRejected: s.config.CountRejected}
}

func (s *slidingLog) SetLimit(l Limit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.config
	next.Limit = l
	if err := next.Validate(); err != nil {
		return err
	}
	s.config.Limit, s.policy = l, policyOf(l.Name, l) // Traits reads the other fields without the lock
	return nil
}

// wait returns how long after now a claim of n units would be granted.
func (s *slidingLog) wait(n, now int64) time.Duration {
	if n > s.config.Limit.Count {
		return Forever
	}
	var w time.Duration
	if last := s.entries.len() - 1; last >= 0 {
		w = s.left(last, s.config.MinGap, now)
	}
	if i := s.entries.excess(s.config.Limit.Count - n); i > 0 {
		w = max(w, s.left(i-1, s.config.Limit.Per, now))
	}
	return w
}

// left returns how long after now the i-th entry is as old as d, or 0 if it is.
func (s *slidingLog) left(i int, d time.Duration, now int64) time.Duration {
	return time.Duration(max(ticks.Sub(ticks.Add(s.entries.at(i).at, int64(d)), now), 0))
}

func (s *slidingLog) expired(now int64) int {
	return s.entries.countUntil(ticks.Sub(now, int64(s.config.Limit.Per)))
}

// record adds n units at now, and drops the entries that have expired.
func (s *slidingLog) record(n, now int64) {
	n = min(n, s.config.Limit.Count)
	s.entries.drop(s.expired(now))
	if s.config.CountRejected {
		s.entries.trimTo(s.config.Limit.Count - n)
	}
	s.entries.add(now, n)
	s.last = now
}

// entries is a queue of units, oldest first.
type entries struct {
	ring    []entry // its length is a power of two, or 0
	head    int     // index of the oldest entry in ring, before wrapping around
	tail    int     // one more than the index of the newest entry
	dropped uint64  // running total of all units that are no longer in the queue
	total   uint64  // running total of all units
}

// An entry is the units taken at one instant. Totals may wrap around; their differences do
// not, because no more than math.MaxInt64 units are in the queue.
type entry struct {
	at    int64
	total uint64 // of all units up to and including these
}

func (q *entries) len() int        { return q.tail - q.head }
func (q *entries) at(i int) *entry { return &q.ring[(q.head+i)&(len(q.ring)-1)] }

func (q *entries) unitsOfFirst(i int) int64 {
	if i == 0 {
		return 0
	}
	return max(int64(q.at(i-1).total-q.dropped), 0)
}

func (q *entries) unitsAfter(i int) int64 { return int64(q.total-q.dropped) - q.unitsOfFirst(i) }

// countUntil returns the number of entries at or before t.
func (q *entries) countUntil(t int64) int {
	return sort.Search(q.len(), func(i int) bool { return q.at(i).at > t })
}

// excess returns how many of the oldest entries must be dropped to keep at most n units.
func (q *entries) excess(n int64) int {
	return sort.Search(q.len(), func(i int) bool { return q.unitsAfter(i) <= n })
}

func (q *entries) drop(i int) {
	q.dropped += uint64(q.unitsOfFirst(i))
	q.head += i
}

// trimTo drops the oldest units, so that n remain. An entry may be dropped in part.
func (q *entries) trimTo(n int64) {
	if q.unitsAfter(0) <= n {
		return
	}
	i := q.excess(n)
	if q.unitsAfter(i) < n {
		i--
	}
	q.drop(i)
	q.dropped = q.total - uint64(n)
}

// add appends n units at t, which must not be before the newest entry.
func (q *entries) add(t, n int64) {
	q.total += uint64(n)
	if i := q.len() - 1; i >= 0 && q.at(i).at == t {
		q.at(i).total = q.total
		return
	}
	if q.len() == len(q.ring) {
		q.grow()
	}
	q.tail++
	*q.at(q.len() - 1) = entry{t, q.total}
}

func (q *entries) grow() {
	ring := make([]entry, max(2*len(q.ring), 8))
	n := q.len()
	for i := range n {
		ring[i] = *q.at(i)
	}
	q.ring, q.head, q.tail = ring, 0, n
}

// change adds n units to the i-th entry, or removes -n units from it, at most all of them.
// An entry without units is removed.
func (q *entries) change(i int, n int64) {
	own := q.unitsOfFirst(i+1) - q.unitsOfFirst(i)
	n = min(max(n, -own), math.MaxInt64-q.unitsAfter(0))
	q.total += uint64(n)
	for j := i; j < q.len(); j++ {
		q.at(j).total += uint64(n)
	}
	if n != -own {
		return
	}
	for j := i; j < q.len()-1; j++ {
		*q.at(j) = *q.at(j + 1)
	}
	q.tail--
}
