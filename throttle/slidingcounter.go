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

// A SlidingCounterConfig configures NewSlidingCounter. Burst must be 0 or Count.
type SlidingCounterConfig struct {
	Limit Limit

	// Parts is the number of sub-windows in Per that are counted one by one. Zero means an
	// estimate from the counts of two windows.
	Parts int

	// RoundDown rounds the estimate down: with a limit of 50, an estimate of 49.5 then allows one
	// more unit. It must be false with Parts.
	RoundDown bool
}

// Validate returns an error that states the invalid field if c is invalid.
func (c SlidingCounterConfig) Validate() error {
	switch {
	case c.Parts < 0 || c.Parts > 0 && time.Duration(c.Parts) > c.Limit.Per:
		return fmt.Errorf("throttle: sliding counter %q: Parts is %d: it must lie between 0 and the nanoseconds in Per", c.Limit.Name, c.Parts)
	case c.Parts > 0 && c.RoundDown:
		return fmt.Errorf("throttle: sliding counter %q: RoundDown is set: with Parts nothing is estimated: leave it false", c.Limit.Name)
	}
	return cmp.Or(c.Limit.checkNoBurst("sliding counter"), c.Limit.Validate())
}

type slidingCounter struct {
	base   // readings count from the Unix epoch: windows are whole multiples of Per since then
	config SlidingCounterConfig
	counts slidingCounts
}

// NewSlidingCounter returns a limiter of the units taken in the last Per. Its memory does not
// depend on the limit: it keeps two counts, or one for each of Parts.
//
// Without Parts it estimates the units from the counts of the current and of the previous
// window, of which the latter is weighted by the part of it that lies within the last Per.
//
//	      previous: 84            current: 36
//	├────────────────────────┼─────┬──────────────────┤
//	      |<---------- last Per -->|
//	       3/4 of the previous    now      84*3/4 + 36 = 99
//
// The estimate assumes that units are distributed evenly. It is compared without rounding.
//
// With Parts it counts units in sub-windows of Per/Parts, and limits the sum of the last Parts
// of them, including the current one.
//
//	 Parts 3, Per 1 h            limit 100
//	├────────┼────────┼────────┼────────┼──▶
//	    10   │   20       30   ▲        │
//	 expired │   |<- 20 + 30 + units taken now ->|
//
// Invariant: within one window, and in any Parts consecutive sub-windows, no more than
// Count units are granted and kept. Within any span as long as a window it is less than
// twice Count without Parts, and up to twice Count with Parts, as such a span can overlap
// one sub-window more. NewSlidingLog is exact.
//
// SetLimit replaces Count and Per. If Per changes, the units that currently count are counted
// as taken now, and Report does nothing for claims granted before.
//
// It panics if c is invalid.
func NewSlidingCounter(c SlidingCounterConfig) Adjustable {
	must(c.Validate(), "NewSlidingCounter")
	return &slidingCounter{base: newBase(ticks.NewEpochTimeline(), policyOf(c.Limit.Name, c.Limit)), config: c, counts: newSlidingCounts(c)}
}

func (s *slidingCounter) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n, now, err := s.begin(&c, &d)
	if err != nil {
		return d, err
	}
	defer s.mu.Unlock()
	d.Limit, d.Per = s.config.Limit.Count, s.config.Limit.Per
	used := s.counts.used(now)
	switch {
	case n > s.config.Limit.Count:
		d.Wait = Forever
	case n > ticks.Sub(s.config.Limit.Count, used):
		d.Wait = s.counts.waitUntilAtMost(s.config.Limit.Count-n, now)
	default:
		if d.OK = true; !c.DryRun {
			d.Grant = s.counts.add(n, now)
			used += n
			s.last = now
		}
	}
	d.Remaining = max(ticks.Sub(s.config.Limit.Count, used), 0)
	if used > 0 {
		d.ResetAfter = s.counts.waitUntilAtMost(0, now)
	}
	d.setFresh(&c)
	return d, nil
}

// Report implements Limiter: it corrects the cost of the claim as long as that counts.
func (s *slidingCounter) Report(_ context.Context, c Claim, d Decision, f Feedback) {
	s.correct(c, d, f, func(extra, _ int64) { s.counts.adjust(d.Grant, extra) })
}

func (s *slidingCounter) SetLimit(l Limit) error {
	given := s.time.Read(time.Time{})
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.config
	next.Limit = l
	if err := next.Validate(); err != nil {
		return err
	}
	if l.Per != s.config.Limit.Per {
		s.last = max(given, s.last) // an older reading must not be before the moved count
		s.counts.setPer(int64(l.Per), s.last)
	}
	s.config, s.policy = next, policyOf(l.Name, l)
	return nil
}

// slidingCounts are the units taken in the latest sub-windows, as running totals: the units of
// several sub-windows are the difference of two totals. An estimate has one sub-window, which
// is the whole window, and also keeps the one before it. Readings must not be older than that
// of the latest add.
type slidingCounts struct {
	per       int64
	parts     int64 // number of sub-windows in per
	estimated bool  // the sub-window before the last parts counts too, weighted by what is left of it
	roundDown bool  // round the weighted count down

	part  int64 // sub-window of the latest add, counted from the epoch
	shift int64 // part + shift is a number that no sub-window of another length has had

	// Totals may wrap around; their differences do not.
	total  int64   // running total of all units
	starts []int64 // a ring: totals at the start of the latest sub-windows
	newest int     // index of the total at the start of part
}

// newSlidingCounts returns the counts of c before the first claim.
func newSlidingCounts(c SlidingCounterConfig) slidingCounts {
	s := slidingCounts{per: int64(c.Limit.Per), parts: int64(c.Parts), roundDown: c.RoundDown, part: ticks.Never}
	s.starts = make([]int64, c.Parts)
	if s.estimated = c.Parts == 0; s.estimated {
		s.parts, s.starts = 1, make([]int64, 2)
	}
	return s
}

// used returns the units that count at now. Rounded up, the weighted count gives the same
// decisions on whole units as without rounding.
func (s *slidingCounts) used(now int64) int64 {
	part := s.partAt(now)
	left := s.per - (now - part*s.per) // of the window before part, if the units are estimated
	switch {
	case !s.estimated:
		return s.sum(part)
	case s.roundDown:
		return ticks.Add(s.sum(part), ticks.MulDivDown(s.taken(part-1), left, s.per))
	}
	return ticks.Add(s.sum(part), ticks.MulDivUp(s.taken(part-1), left, s.per))
}

// waitUntilAtMost returns how long after now the units that count decrease to the given number.
func (s *slidingCounts) waitUntilAtMost(units, now int64) time.Duration {
	part := s.partAt(now)
	var at int64
	if s.estimated {
		at = s.fadedAt(units, part)
	} else {
		next, last := part+1, s.part+s.parts // at the start of last all units have expired
		next += int64(sort.Search(int(last-next), func(i int) bool { return s.sum(next+int64(i)) <= units }))
		at = ticks.MulDivCeil(next, s.per, s.parts)
	}
	return time.Duration(ticks.Sub(at, now))
}

// fadedAt returns when the estimate, in window part or the next one, no longer exceeds units.
func (s *slidingCounts) fadedAt(units, part int64) int64 {
	free := units - s.sum(part)
	if free < 0 { // not in this window; in the next one its count is the weighted one
		part, free = part+1, units
	}
	at, previous := ticks.Mul(part, s.per), s.taken(part-1)
	switch {
	case previous <= free:
		return at
	case s.roundDown: // rounded down, it fits while it is less than free + 1
		return ticks.Add(at, s.per-(ticks.MulDivUp(free+1, s.per, previous)-1))
	}
	return ticks.Add(at, s.per-ticks.MulDivDown(free, s.per, previous))
}

// add adds units at now and returns the Decision.Grant with which they can be adjusted.
func (s *slidingCounts) add(units, now int64) (grant uint64) {
	s.advance(s.partAt(now))
	s.total += units
	return uint64(s.part + s.shift)
}

// adjust changes the units that were added with grant by n, as long as they count. It removes
// at most what was taken in the sub-window.
func (s *slidingCounts) adjust(grant uint64, n int64) {
	part := int64(grant) - s.shift
	if part > s.part || part <= s.part-int64(len(s.starts)) {
		return
	}
	own := s.taken(part)
	n = min(max(n, -own), math.MaxInt64-max(own, s.sum(s.part)))
	s.total += n
	for i := part + 1; i <= s.part; i++ {
		*s.start(i) += n
	}
}

// setPer changes the length of the window at now. The units that count then count as
// added now, and earlier grants can no longer be adjusted.
func (s *slidingCounts) setPer(per, now int64) {
	used, id := s.used(now), s.partAt(now)+s.shift
	s.per, s.part, s.total = per, ticks.Never, 0
	s.advance(s.partAt(now))
	s.total, s.shift = used, id+int64(len(s.starts))-s.part
}

// advance makes part the current sub-window.
func (s *slidingCounts) advance(part int64) {
	for range min(ticks.Sub(part, s.part), int64(len(s.starts))) {
		s.newest = (s.newest + 1) % len(s.starts)
		s.starts[s.newest] = s.total
	}
	s.part = part
}

// sum returns the units of part, which must not be before the current one, and of those before it within the window.
func (s *slidingCounts) sum(part int64) int64 { return s.total - s.totalBefore(part-s.parts+1) }

func (s *slidingCounts) taken(part int64) int64 { return s.totalBefore(part+1) - s.totalBefore(part) }

// totalBefore returns the total at the start of part, or the current one if that is later.
func (s *slidingCounts) totalBefore(part int64) int64 {
	if part > s.part {
		return s.total
	}
	return *s.start(part)
}

// start returns the total at the start of part, one of the latest sub-windows.
func (s *slidingCounts) start(part int64) *int64 {
	i := s.newest - int(s.part-part)
	if i < 0 {
		i += len(s.starts)
	}
	return &s.starts[i]
}

func (s *slidingCounts) partAt(now int64) int64 { return ticks.MulDivDown(now, s.parts, s.per) }
