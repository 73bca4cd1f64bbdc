package throttle

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// SubWindowsConfig configures a SubWindows: Count units in any Parts consecutive
// sub-windows. Burst must be 0 or Count.
type SubWindowsConfig struct {
	Limit

	// Parts is the number of sub-windows in Per. It must be positive.
	Parts int
}

// Validate returns an error that states the invalid field if p is invalid.
func (p SubWindowsConfig) Validate() error {
	if p.Parts <= 0 || time.Duration(p.Parts) > p.Per {
		return fmt.Errorf("throttle: sub-windows %q: Parts is %d: it must lie between 1 and the nanoseconds in Per", p.Name, p.Parts)
	}
	if err := p.checkNoBurst("sub-windows"); err != nil {
		return err
	}
	return p.Limit.Validate()
}

// SubWindows counts units in short windows, and limits the sum of the current one and
// those before it within the last Per. Unlike SlidingCounter it does not estimate. Its
// memory is one number for each part, not for each unit.
//
//	 three parts of 20 min          limit 100 an hour
//	├────────┼────────┼────────┼────────┼──▶
//	    10   │   20       30   ▲        │
//	 expired │   |<- 20 + 30 + units taken now ->|
//
// The sum is the difference of two running totals, the current one and the one at the
// start of the oldest part, so no decision adds up the parts.
//
// Invariant: in any Parts consecutive sub-windows no more than Count units are granted and
// kept. A span of length Per may overlap one part more, and so contain up to twice that.
//
// A claim with a reading older than the latest grant is decided in the sub-window of that
// grant, so it never sees a smaller sum than earlier claims. Only grants drop parts.
type SubWindows struct {
	base   // readings count from the Unix epoch
	config SubWindowsConfig
	part   int64 // sub-window of last, counted from the epoch
	shift  int64 // part + shift is a number that no sub-window of another length has had

	// Totals may wrap around; their differences do not.
	total  int64   // running total of all units
	totals []int64 // totals[i mod Parts]: total at the start of part i, for the latest parts
}

// NewSubWindows returns an unused limiter. It panics if p is invalid.
func NewSubWindows(p SubWindowsConfig) *SubWindows {
	must(p.Validate(), "NewSubWindows")
	return &SubWindows{base: newEpochBase(p.policy()), config: p, part: ticks.Never, totals: make([]int64, p.Parts)}
}

// Reserve implements Limiter.
func (s *SubWindows) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n, r, err := s.begin(&c, &d)
	if err != nil {
		return d, err
	}
	defer s.mu.Unlock()
	part := s.partAt(r.now)
	d.Limit, d.Per = s.config.Count, s.config.Per
	sum := s.sum(part)
	switch {
	case n > s.config.Count:
		d.Wait = Forever
	case n > s.config.Count-sum:
		d.Wait = s.waitUntilAtMost(s.config.Count-n, part, r.now)
	default:
		d.OK = true
		if !c.DryRun {
			s.advance(part)
			s.total, s.last = s.total+n, r.now
			sum += n
			d.Grant = uint64(part + s.shift)
		}
	}
	d.Remaining = max(s.config.Count-sum, 0)
	if sum > 0 {
		d.ResetAfter = s.waitUntilAtMost(0, part, r.now)
	}
	return d, nil
}

// Cancel implements Limiter.
func (s *SubWindows) Cancel(_ context.Context, c Claim, d Decision) {
	if n, err := c.Units(); err == nil && d.OK {
		s.adjust(-n, d)
	}
}

// Observe implements Observer: it corrects the cost of the claim in the sub-window in
// which it was granted, as long as that counts.
func (s *SubWindows) Observe(_ context.Context, c Claim, d Decision, f Feedback) {
	if extra := f.ExtraCost(c, d); extra != 0 {
		s.adjust(extra, d)
	}
}

// SetLimit replaces Count and Per. If Per changes, the units that currently count are
// counted as taken now, and claims granted before can no longer be canceled or corrected.
// If SetLimit returns an error, nothing has changed.
func (s *SubWindows) SetLimit(l Limit) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := SubWindowsConfig{Limit: l, Parts: s.config.Parts}
	if err := next.Validate(); err != nil {
		return err
	}
	now := s.latest(time.Time{})
	part, per := s.partAt(now), s.config.Per
	sum, id := s.sum(part), part+s.shift
	s.config, s.policy = next, l.policy()
	if l.Per != per {
		s.part, s.total = ticks.Never, 0
		s.advance(s.partAt(now))
		s.total, s.shift = sum, id+int64(s.config.Parts)-s.part
		s.last = now // an older reading must not be before the moved count
	}
	return nil
}

// adjust takes n more units in the sub-window in which d was granted, or returns -n, at
// most what was taken there.
func (s *SubWindows) adjust(n int64, d Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	part := int64(d.Grant) - s.shift
	if part > s.part || part <= s.part-int64(s.config.Parts) {
		return
	}
	own := s.totalBefore(part+1) - s.totalBefore(part)
	n = min(max(n, -own), math.MaxInt64-s.sum(s.part))
	s.total += n
	for i := part + 1; i <= s.part; i++ {
		s.totals[s.ringIndex(i)] += n
	}
}

// advance makes part the current sub-window.
func (s *SubWindows) advance(part int64) {
	for i := max(s.part, part-int64(s.config.Parts)) + 1; i <= part; i++ {
		s.totals[s.ringIndex(i)] = s.total
	}
	s.part = part
}

// sum returns the units that count in part, which must not be before the current one.
func (s *SubWindows) sum(part int64) int64 {
	return s.total - s.totalBefore(part-int64(s.config.Parts)+1)
}

// totalBefore returns the total at the start of part, or the current total if part has not
// started.
func (s *SubWindows) totalBefore(part int64) int64 {
	if part > s.part {
		return s.total
	}
	return s.totals[s.ringIndex(part)]
}

// waitUntilAtMost returns how long after now, in part, the sum decreases to the given
// number of units.
func (s *SubWindows) waitUntilAtMost(room, part, now int64) time.Duration {
	lo, hi := part+1, s.part+int64(s.config.Parts) // at the start of hi all units have expired
	for lo < hi {
		if mid := lo + (hi-lo)/2; s.sum(mid) > room {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return time.Duration(ticks.Sub(s.partStart(lo), now))
}

// partAt returns the sub-window of now.
func (s *SubWindows) partAt(now int64) int64 {
	return ticks.MulDivDown(now, int64(s.config.Parts), int64(s.config.Per))
}

// partStart returns when part begins.
func (s *SubWindows) partStart(part int64) int64 {
	return ticks.MulDivCeil(part, int64(s.config.Per), int64(s.config.Parts))
}

func (s *SubWindows) ringIndex(part int64) int {
	k := int64(len(s.totals))
	return int((part%k + k) % k)
}
