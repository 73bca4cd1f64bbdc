package throttle

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// SubWindowsConfig says what a SubWindows allows.
type SubWindowsConfig struct {
	Limit     // Count units in any Parts sub-windows in a row; Burst must be 0 or Count
	Parts int // sub-windows in Per; must be positive
}

// Validate returns an error that says what to change if p can never work.
func (p SubWindowsConfig) Validate() error {
	if p.Parts <= 0 || time.Duration(p.Parts) > p.Per {
		return fmt.Errorf("throttle: sub-windows %q: Parts is %d: it must lie between 1 and the nanoseconds in Per", p.Name, p.Parts)
	}
	if err := p.checkNoBurst("sub-windows"); err != nil {
		return err
	}
	return p.Limit.Validate()
}

// SubWindows counts units in short windows, and sums up the current one and those
// before it that lie in the last Per. It guesses nothing, as SlidingCounter does,
// and needs a number for each of its parts rather than for each unit.
//
//	 three parts of 20 min          limit 100 an hour
//	├────────┼────────┼────────┼────────┼──▶
//	    10   │   20       30   ▲        │
//	    gone │   |<- 20 + 30 + what comes here ->|
//
// The sum is a difference of two running totals, the present one and the one that
// was kept when the oldest part began: no decision adds up the parts.
//
// Invariant: in any Parts sub-windows in a row no more than Count units are granted
// and kept. A span of length Per may touch one part more, and so see twice that.
//
// The odd case is a claim with an older reading while parts are dropped: it is
// decided in the sub-window of the newest grant, and never sees a smaller sum than
// those before it did. Only grants drop parts.
type SubWindows struct {
	base   // readings are since the Unix epoch
	config SubWindowsConfig
	part   int64 // the sub-window of last, counted from the epoch
	shift  int64 // part + shift is a number that no sub-window of another length has had

	// Totals may wrap around; their differences do not.
	total  int64   // of all units so far
	totals []int64 // before[i mod Parts]: the total when part i began, for the latest parts
}

// NewSubWindows returns an unused limiter. A nil clk is the system clock. It panics
// if p is invalid.
func NewSubWindows(p SubWindowsConfig, clk Clock) *SubWindows {
	must(p.Validate(), "NewSubWindows")
	return &SubWindows{base: newEpochBase(clk, p.policy()), config: p, part: ticks.Never, totals: make([]int64, p.Parts)}
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

// Observe implements Observer: it settles a cost that was known only afterwards,
// with the sub-window that the grant came from, as long as that counts.
func (s *SubWindows) Observe(_ context.Context, c Claim, d Decision, f Feedback) {
	if extra := f.ExtraCost(c, d); extra != 0 {
		s.adjust(extra, d)
	}
}

// SetLimit replaces Count and Per. If Per changes, what counts at the time is taken
// to have come just now, and grants from before can no longer be given back. The
// error says what to change, and then nothing has changed.
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
		s.last = now // an older reading must not find what has moved here still to come
	}
	return nil
}

// adjust takes n more units in the sub-window that d came from, or gives back -n, at
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

// sum returns the units that count in part, which is not before the current one.
func (s *SubWindows) sum(part int64) int64 {
	return s.total - s.totalBefore(part-int64(s.config.Parts)+1)
}

// totalBefore returns the total when part began, or the present one if it has not.
func (s *SubWindows) totalBefore(part int64) int64 {
	if part > s.part {
		return s.total
	}
	return s.totals[s.ringIndex(part)]
}

// waitUntilAtMost returns how long after now, in part, no more than room units count.
func (s *SubWindows) waitUntilAtMost(room, part, now int64) time.Duration {
	lo, hi := part+1, s.part+int64(s.config.Parts) // in the last one all have gone
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
