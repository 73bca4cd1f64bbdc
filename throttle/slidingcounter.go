package throttle

import (
	"context"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A SlidingCounterConfig says what a SlidingCounter allows.
type SlidingCounterConfig struct {
	Limit          // Count units in any Per, by estimate; Burst must be 0 or Count
	RoundDown bool // the estimate is rounded down, which lets a little more through
}

// SlidingCounter estimates what was taken in the last Per from two counts: that of
// the current window, and that of the one before, weighted by how much of it the
// last Per still reaches. Two numbers, however high the limit.
//
//	      previous: 84            current: 36
//	├────────────────────────┼─────┬──────────────────┤
//	      |<---------- last Per -->|
//	       3/4 of the previous    now      84*3/4 + 36 = 99
//
// An estimate that is no whole number is compared as it is, without rounding.
// As costs are whole, rounding it up gives the same answers. Floor rounds it down:
// of a limit of 50, an estimate of 49.5 then leaves room for one more.
//
// Invariant: within one window no more than Count units are granted and kept;
// within any span as long as a window, less than twice that. The twofold is
// reached if all of the previous came at its end and all of the current at its
// own: the estimate believes that units come evenly. SlidingLog does not estimate.
//
// The odd case is idleness: after a gap of two windows both counts are old, and
// not even the previous one counts.
type SlidingCounter struct {
	base   // readings are since the Unix epoch: windows are whole multiples of Per since that
	config SlidingCounterConfig
	counts counts
}

// counts are those of the window with a number, and of the one before it.
type counts struct {
	window            int64
	id                uint64 // as window, but never the same for windows of different length
	current, previous int64
}

// Validate returns an error that says what to change if c can never work.
func (c SlidingCounterConfig) Validate() error {
	if err := c.Limit.checkNoBurst("sliding counter"); err != nil {
		return err
	}
	return c.Limit.Validate()
}

// NewSlidingCounter returns an unused limiter. A nil clk is the system clock. It
// panics if l is invalid.
func NewSlidingCounter(l SlidingCounterConfig, clk Clock) *SlidingCounter {
	must(l.Validate(), "NewSlidingCounter")
	return &SlidingCounter{base: newEpochBase(clk, l.policy()), config: l, counts: counts{window: ticks.Never}}
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

// Observe implements Observer: it settles a cost that was known only afterwards,
// with the window that the grant came from, as long as that counts.
func (s *SlidingCounter) Observe(_ context.Context, c Claim, d Decision, f Feedback) {
	if extra := f.ExtraCost(c, d); extra != 0 {
		s.adjust(extra, d)
	}
}

// SetLimit replaces Count and Per. If Per changes, what is estimated at the time is
// taken to have come just now, and grants from before can no longer be given back.
// The error says what to change, and then nothing has changed.
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
		s.last = now // an older reading must not find what has moved here still to come
	}
	s.config, s.policy = next, l.policy()
	return nil
}

// adjust takes n more units in the window that d came from, or gives back -n.
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

// previousWeight returns what the previous count still weighs at now. Rounding it up
// answers a claim of whole units as no rounding would.
func (s *SlidingCounter) previousWeight(c counts, now int64) int64 {
	per := int64(s.config.Per)
	left := per - (now - c.window*per)
	if s.config.RoundDown {
		return ticks.MulDivDown(c.previous, left, per)
	}
	return ticks.MulDivUp(c.previous, left, per)
}

// wait returns how long after now a claim of n units would be granted, if nothing
// was taken in between.
func (s *SlidingCounter) wait(c counts, n, now int64) time.Duration {
	if n > s.config.Count {
		return Forever
	}
	if ticks.Sub(s.config.Count-s.previousWeight(c, now), c.current) >= n {
		return 0
	}
	room := ticks.Sub(s.config.Count-n, c.current)
	if room < 0 { // not in this window; in the next its count is the previous one
		c = counts{window: c.window + 1, previous: c.current}
		room = s.config.Count - n
	}
	start := ticks.Mul(c.window, int64(s.config.Per))
	return time.Duration(ticks.Sub(ticks.Add(start, s.fadeTime(c.previous, room)), now))
}

// fadeTime returns how long into a window the weight of the previous count is no more
// than room.
func (s *SlidingCounter) fadeTime(previous, room int64) int64 {
	per := int64(s.config.Per)
	switch {
	case previous <= room:
		return 0
	case s.config.RoundDown: // rounded down it fits while it is less than room + 1
		return per - (ticks.MulDivUp(room+1, per, previous) - 1)
	}
	return per - ticks.MulDivDown(room, per, previous)
}
