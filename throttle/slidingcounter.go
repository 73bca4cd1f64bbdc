package throttle

import (
	"context"
	"fmt"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A SlidingCounterConfig configures NewSlidingCounter: Count units in any Per. Burst must be
// 0 or Count.
type SlidingCounterConfig struct {
	Limit Limit

	// Parts is the number of sub-windows in Per that are counted one by one. Zero means an
	// estimate from the counts of two windows.
	Parts int

	// RoundDown rounds the estimate down, which grants slightly more. It must be false with
	// Parts.
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
	if err := c.Limit.checkNoBurst("sliding counter"); err != nil {
		return err
	}
	return c.Limit.Validate()
}

// A slidingCounter is the limiter of NewSlidingCounter.
type slidingCounter struct {
	base   // readings count from the Unix epoch: windows are whole multiples of Per since then
	config SlidingCounterConfig
	counts slidingCounts
}

// slidingCounts are the counts of a slidingCounter. Readings are not older than that of the
// latest add.
type slidingCounts interface {
	// used returns the units that count at now, rounded up if they are an estimate.
	used(now int64) int64

	// waitUntilAtMost returns how long after now the units that count decrease to the given
	// number if none are added.
	waitUntilAtMost(units, now int64) time.Duration

	// add adds units at now and returns the Decision.Grant with which they can be adjusted.
	add(units, now int64) (grant uint64)

	// adjust changes the units that were added with grant by n, as long as they count.
	adjust(grant uint64, n int64)

	// setPer changes the length of the window at now. The units that count then count as
	// added now, and earlier grants can no longer be adjusted.
	setPer(per, now int64)
}

// NewSlidingCounter returns a limiter of the units taken in the last Per. It keeps counts for windows
// instead of a record of each unit, so its memory is independent of the limit: two numbers,
// or one for each of Parts.
//
// Without Parts it estimates the units from two counts: that of the current window, and
// that of the previous window, weighted by the part of it that lies within the last Per.
//
//	      previous: 84            current: 36
//	├────────────────────────┼─────┬──────────────────┤
//	      |<---------- last Per -->|
//	       3/4 of the previous    now      84*3/4 + 36 = 99
//
// The estimate assumes that units are distributed evenly. It is compared without rounding.
// RoundDown rounds it down: with a limit of 50, an estimate of 49.5 then allows one more
// unit.
//
// With Parts it counts units in sub-windows of Per/Parts, and limits the sum of the current
// one and those before it within the last Per.
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
// A claim with a reading older than the latest grant is decided in the window of that
// grant.
//
// SetLimit replaces Count and Per. If Per changes, the units that currently count are counted as taken now, and
// claims granted before can no longer be canceled or corrected.
//
// It panics if c is invalid.
func NewSlidingCounter(c SlidingCounterConfig) Adjustable {
	must(c.Validate(), "NewSlidingCounter")
	s := &slidingCounter{base: newBase(ticks.NewEpochTimeline(), policyOf(c.Limit.Name, c.Limit)), config: c}
	if c.Parts > 0 {
		s.counts = &partCounts{per: int64(c.Limit.Per), parts: int64(c.Parts), part: ticks.Never, totals: make([]int64, c.Parts)}
	} else {
		s.counts = &windowCounts{per: int64(c.Limit.Per), roundDown: c.RoundDown, window: ticks.Never}
	}
	return s
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

// Report implements Limiter: it corrects the cost of the claim in the window or
// sub-window in which it was granted, as long as that counts.
func (s *slidingCounter) Report(_ context.Context, c Claim, d Decision, f Feedback) {
	if extra := f.ExtraCost(c, d); extra != 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.counts.adjust(d.Grant, extra)
	}
}

func (s *slidingCounter) SetLimit(l Limit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.config
	next.Limit = l
	if err := next.Validate(); err != nil {
		return err
	}
	if l.Per != s.config.Limit.Per {
		now := s.latest(time.Time{})
		s.counts.setPer(int64(l.Per), now)
		s.last = now // an older reading must not be before the moved count
	}
	s.config, s.policy = next, policyOf(l.Name, l)
	return nil
}

// windowCounts are the units taken in the window with a number, and in the one before it.
type windowCounts struct {
	per       int64
	roundDown bool

	window            int64
	id                uint64 // like window, but never the same for windows of different length
	current, previous int64
}

func (w windowCounts) at(now int64) windowCounts {
	number := ticks.FloorDiv(now, w.per)
	passed := number - w.window
	switch passed {
	case 0:
		return w
	case 1:
		w.previous = w.current
	default:
		w.previous = 0
	}
	w.window, w.id, w.current = number, w.id+uint64(passed), 0
	return w
}

func (w *windowCounts) used(now int64) int64 {
	c := w.at(now)
	return ticks.Add(c.current, c.previousWeight(now))
}

// previousWeight returns the weighted previous count at now. Rounded up, it gives the same
// decisions on whole units as without rounding.
func (w *windowCounts) previousWeight(now int64) int64 {
	left := w.per - (now - w.window*w.per)
	if w.roundDown {
		return ticks.MulDivDown(w.previous, left, w.per)
	}
	return ticks.MulDivUp(w.previous, left, w.per)
}

func (w *windowCounts) waitUntilAtMost(units, now int64) time.Duration {
	c := w.at(now)
	room := ticks.Sub(units, c.current)
	if room < 0 { // not in this window; in the next one its count is the previous one
		c.window, c.previous = c.window+1, c.current
		room = units
	}
	start := ticks.Mul(c.window, c.per)
	return time.Duration(ticks.Sub(ticks.Add(start, c.fadeTime(room)), now))
}

// fadeTime returns how long after the start of the window the weighted previous count no
// longer exceeds the allowed number of units.
func (w *windowCounts) fadeTime(room int64) int64 {
	switch {
	case w.previous <= room:
		return 0
	case w.roundDown: // rounded down, it fits while it is less than the argument plus 1
		return w.per - (ticks.MulDivUp(room+1, w.per, w.previous) - 1)
	}
	return w.per - ticks.MulDivDown(room, w.per, w.previous)
}

func (w *windowCounts) add(units, now int64) uint64 {
	*w = w.at(now)
	w.current += units
	return w.id
}

func (w *windowCounts) adjust(grant uint64, n int64) {
	switch grant {
	case w.id:
		w.current = max(ticks.Add(w.current, n), 0)
	case w.id - 1:
		w.previous = max(ticks.Add(w.previous, n), 0)
	}
}

func (w *windowCounts) setPer(per, now int64) {
	c := w.at(now)
	c.current = ticks.Add(c.current, c.previousWeight(now))
	*w = windowCounts{per: per, roundDown: c.roundDown, window: ticks.FloorDiv(now, per), id: c.id + 2, current: c.current}
}
