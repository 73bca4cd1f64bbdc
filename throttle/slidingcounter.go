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
