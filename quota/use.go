package quota

import (
	"math"
	"time"
)

// A Pacing selects how the remaining units of a quota are spent over the time until its reset.
type Pacing uint8

const (
	// Auto sends requests immediately while at least a tenth of the quota remains. Below that
	// it spreads them like Spread, if the reset is more than 30 seconds and not more than an
	// hour away, or is within a window that the server states.
	Auto Pacing = iota

	// Burst sends requests immediately until no units remain.
	Burst

	// Spread sends requests at even intervals, so that no units remain at the reset.
	Spread
)

const (
	spreadBelow = 0.1              // of the limit, in Auto
	spreadFar   = 30 * time.Second // from the reset, in Auto
)

// A pacing is how we use the quotas that servers tell.
type pacing struct {
	mode     Pacing
	headroom float64 // left to others

	maxHold time.Duration // until the first test of a reset that is too far away
}

// reserved returns how many units of limit are left to others.
func (p pacing) reserved(limit int64) int64 {
	if p.headroom <= 0 {
		return 0
	}
	return int64(math.Ceil(min(p.headroom, 1) * float64(limit)))
}

// spreads reports whether the units that are free of t are to be spread over the
// time until its reset. Those of a bucket that fills up evenly are so by nature.
func (p pacing) spreads(e *estimate, units int64, now time.Time) bool {
	if p.mode == Burst || e.refill.kind == refillsEvenly {
		return false
	}
	far := e.reset.Sub(now)
	few := float64(units) < spreadBelow*float64(e.limit) && far > spreadFar && far <= max(maxStated, e.per)
	return p.mode == Spread || few
}

// scheduleNext notes that a claim goes at now. Units of t are free for the time that is
// left, so the next one is due after its part of that.
func (p pacing) scheduleNext(e *estimate, now time.Time, f *inFlight) {
	units := e.left(now) - f.open - p.reserved(e.limit)
	if left := e.reset.Sub(now); left > 0 {
		e.next = now.Add(left / time.Duration(max(units+1, 1)))
	}
}
