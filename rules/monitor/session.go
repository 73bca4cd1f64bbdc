package monitor

import (
	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A session is what one key asked for, from a first claim until nothing of it matters any
// more. It tells which limits would have granted all of that:
//
//	needs   the least burst of a token bucket with the rate of the limit; exact, see meter
//	peak    the most units in any Per, and up to a sixteenth of a Per around it
//
// The peak is counted in bins of a sixteenth of a Per, of which any Per touches at most
// seventeen:
//
//	units   3 0 0 1 5 2 0 0 1 4 2 0 0 0 1 7 2 │ 1 ...
//	        ├─────────────── Per ───────────────┤
type session struct {
	params *sessionParams
	last   int64 // reading of the latest claim
	weight int64 // for so many visits, as others are not followed

	meter    meter
	minBurst int64

	bins [binsPerPer + 1]int64
	bin  int64 // which one the latest claim fell into
	sum  int64
	peak int64

	refused   bool  // at least once
	inStreak  bool  // the latest claim was refused
	refusedAt int64 // when it was
}

const (
	binsPerPer  = 16
	maxUnits    = 1 << 53 // of a claim, so that sums do not overflow
	maxBinUnits = 1 << 57
)

// A sessionParams is the limit that visits are measured by.
type sessionParams struct {
	rate         drainRate
	binWidth     int64 // of a bin
	returnWithin int64 // after so long a grant does not end a streak of refusals
}

func newSessionParams(l throttle.Limit, returnWithin int64) *sessionParams {
	per := int64(l.Per)
	if returnWithin <= 0 {
		returnWithin = ticks.Add(per, per)
	}
	return &sessionParams{rate: drainRateOf(l), binWidth: (per + binsPerPer - 1) / binsPerPer, returnWithin: returnWithin}
}

// begin makes v a new visit, one of so many.
func (v *session) begin(m *sessionParams, now, weight int64) {
	*v = session{params: m, last: now, weight: weight, meter: meter{at: now}, bin: ticks.FloorDiv(now, m.binWidth)}
}

// addClaim counts a claim of n units.
func (v *session) addClaim(n, now int64) {
	n, now = min(n, maxUnits), max(now, v.last)
	v.last = now
	v.minBurst = max(v.minBurst, v.meter.add(n, now, v.params.rate))
	v.advance(ticks.FloorDiv(now, v.params.binWidth))
	b := &v.bins[binIndex(v.bin)]
	was := *b
	*b = min(was+n, maxBinUnits)
	v.sum += *b - was
	v.peak = max(v.peak, v.sum)
}

// advance makes bin the latest one. Those that it takes over are more than a Per old.
func (v *session) advance(bin int64) {
	if bin-v.bin > binsPerPer {
		v.bins, v.sum, v.bin = [binsPerPer + 1]int64{}, 0, bin
		return
	}
	for v.bin < bin {
		v.bin++
		b := &v.bins[binIndex(v.bin)]
		v.sum -= *b
		*b = 0
	}
}

// binIndex returns where a bin is kept.
func binIndex(bin int64) int64 {
	if s := bin % (binsPerPer + 1); s >= 0 {
		return s
	}
	return bin%(binsPerPer+1) + binsPerPer + 1
}

// addDecision follows streaks of refusals. It returns 1 for each one that has ended: in a
// grant that came soon enough, or without.
func (v *session) addDecision(refused bool, now int64) (returned, abandoned int64) {
	now = max(now, v.last)
	if v.inStreak {
		switch expired := v.streakExpired(now); {
		case expired:
			abandoned = 1
		case !refused:
			returned = 1
		}
	}
	if v.inStreak = refused; refused {
		v.refused, v.refusedAt = true, now
	}
	return returned, abandoned
}

// resetTotals forgets what v has shown so far, but not where it stands.
func (v *session) resetTotals() { v.minBurst, v.peak, v.refused = v.meter.level, v.sum, false }

// streakExpired reports whether a grant at now would not end a streak of refusals any more.
func (v *session) streakExpired(now int64) bool { return now-v.refusedAt > v.params.returnWithin }

// expired implements record: nothing that v has asked for would count at now.
func (v *session) expired(now int64) bool {
	return now-v.last > (binsPerPer+1)*v.params.binWidth && v.meter.until(0, v.params.rate) <= now && !(v.inStreak && !v.streakExpired(now))
}
