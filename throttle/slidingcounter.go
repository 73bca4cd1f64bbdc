package throttle

import (
	"context"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A SlidingCounterConfig configures a SlidingCounter: Count units in any Per, by estimate.
// Burst must be 0 or Count.
type SlidingCounterConfig struct {
	Limit

	// RoundDown rounds the estimate down, which grants slightly more.
	RoundDown bool
}

// SlidingCounter estimates the units taken in the last Per from two counts: that of the
// current window, and that of the previous window, weighted by the part of it that lies
// within the last Per. Its memory is two numbers, independent of the limit.
//
//	      previous: 84            current: 36
//	├────────────────────────┼─────┬──────────────────┤
//	      |<---------- last Per -->|
//	       3/4 of the previous    now      84*3/4 + 36 = 99
//
// An estimate that is not a whole number is compared without rounding. Because costs are
// whole numbers, rounding it up gives the same decisions. RoundDown rounds it down: with a
// limit of 50, an estimate of 49.5 then allows one more unit.
//
// Invariant: within one window no more than Count units are granted and kept; within any
// span as long as a window, less than twice that.
//
// Limitations: the estimate assumes that units are distributed evenly. The factor of two
// is approached if all units of the previous window were taken at its end and all of the
// current one at its end. SlidingLog is exact.
type SlidingCounter struct {
	base   // readings count from the Unix epoch: windows are whole multiples of Per since then
	config SlidingCounterConfig
	counts counts
}

// counts are the units taken in the window with a number, and in the one before it.
type counts struct {
	window            int64
	id                uint64 // like window, but never the same for windows of different length
	current, previous int64
}

// Validate returns an error that states the invalid field if c is invalid.
func (c SlidingCounterConfig) Validate() error {
	if err := c.Limit.checkNoBurst("sliding counter"); err != nil {
		return err
	}
	return c.Limit.Validate()
}

// NewSlidingCounter returns an unused limiter. It panics if l is invalid.
func NewSlidingCounter(l SlidingCounterConfig) *SlidingCounter {
	must(l.Validate(), "NewSlidingCounter")
	return &SlidingCounter{base: newEpochBase(l.policy()), config: l, counts: counts{window: ticks.Never}}
}

// Reserve implements Limiter.
func (s *SlidingCounter) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n, r, err := s.begin(&c, &d)
	if err != nil {
		return d, err
	}
	defer s.mu.Unlock()
	at := s.countsAt(r.now)
	d.Limit, d.Per = s.config.Count, s.config.Per
	d.Wait = s.wait(at, n, r.now)
	if d.OK = d.Wait == 0; d.OK {
		d.Grant = at.id
		if !c.DryRun {
			at.current += n
			s.counts, s.last = at, r.now
		}
	}
	d.Remaining = max(ticks.Sub(s.config.Count-s.previousWeight(at, r.now), at.current), 0)
	d.ResetAfter = s.wait(at, s.config.Count, r.now)
	return d, nil
}

// Cancel implements Limiter.
func (s *SlidingCounter) Cancel(_ context.Context, c Claim, d Decision) {
	if n, err := c.Units(); err == nil && d.OK {
		s.adjust(-n, d)
	}
}

// Observe implements Observer: it corrects the cost of the claim in the window in which it
// was granted, as long as that window counts.
func (s *SlidingCounter) Observe(_ context.Context, c Claim, d Decision, f Feedback) {
	if extra := f.ExtraCost(c, d); extra != 0 {
		s.adjust(extra, d)
	}
}

// SetLimit replaces Count and Per. If Per changes, the current estimate counts as taken
// now, and claims granted before can no longer be canceled or corrected. If SetLimit
// returns an error, nothing has changed.
func (s *SlidingCounter) SetLimit(l Limit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := SlidingCounterConfig{Limit: l, RoundDown: s.config.RoundDown}
	if err := next.Validate(); err != nil {
		return err
	}
	if l.Per != s.config.Per {
		now := s.latest(time.Time{})
		at := s.countsAt(now)
		at.current = ticks.Add(at.current, s.previousWeight(at, now))
		s.counts = counts{window: ticks.FloorDiv(now, int64(l.Per)), id: at.id + 2, current: at.current}
		s.last = now // an older reading must not be before the moved count
	}
	s.config, s.policy = next, l.policy()
	return nil
}

// adjust takes n more units in the window in which d was granted, or returns -n.
func (s *SlidingCounter) adjust(n int64, d Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch d.Grant {
	case s.counts.id:
		s.counts.current = max(ticks.Add(s.counts.current, n), 0)
	case s.counts.id - 1:
		s.counts.previous = max(ticks.Add(s.counts.previous, n), 0)
	}
}

// countsAt returns the counts as of now.
func (s *SlidingCounter) countsAt(now int64) counts {
	c := s.counts
	w := ticks.FloorDiv(now, int64(s.config.Per))
	passed := w - c.window
	next := counts{window: w, id: c.id + uint64(passed)}
	switch passed {
	case 0:
		return c
	case 1:
		next.previous = c.current
	}
	return next
}

// previousWeight returns the weighted previous count at now. Rounded up, it gives the same
// decisions on whole units as without rounding.
func (s *SlidingCounter) previousWeight(c counts, now int64) int64 {
	per := int64(s.config.Per)
	left := per - (now - c.window*per)
	if s.config.RoundDown {
		return ticks.MulDivDown(c.previous, left, per)
	}
	return ticks.MulDivUp(c.previous, left, per)
}

// wait returns how long after now a claim of n units would be granted if no other claim
// were granted before.
func (s *SlidingCounter) wait(c counts, n, now int64) time.Duration {
	if n > s.config.Count {
		return Forever
	}
	if ticks.Sub(s.config.Count-s.previousWeight(c, now), c.current) >= n {
		return 0
	}
	room := ticks.Sub(s.config.Count-n, c.current)
	if room < 0 { // not in this window; in the next one its count is the previous one
		c = counts{window: c.window + 1, previous: c.current}
		room = s.config.Count - n
	}
	start := ticks.Mul(c.window, int64(s.config.Per))
	return time.Duration(ticks.Sub(ticks.Add(start, s.fadeTime(c.previous, room)), now))
}

// fadeTime returns how long after the start of a window the weighted previous count no
// longer exceeds the allowed number of units.
func (s *SlidingCounter) fadeTime(previous, room int64) int64 {
	per := int64(s.config.Per)
	switch {
	case previous <= room:
		return 0
	case s.config.RoundDown: // rounded down, it fits while it is less than the argument plus 1
		return per - (ticks.MulDivUp(room+1, per, previous) - 1)
	}
	return per - ticks.MulDivDown(room, per, previous)
}
