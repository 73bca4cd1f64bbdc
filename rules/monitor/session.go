package monitor

import (
	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A session holds what one key asks for, from its first claim until the limit no longer depends on
// any of its claims. It measures the limits that would have granted all of its claims:
//
//	minBurst   the least burst of a token bucket with the rate of the limit; exact, see meter
//	peak       the maximum number of units in any Per, plus at most a sixteenth of a Per
//
// The peak is counted in bins of a sixteenth of a Per, of which any Per touches at most seventeen:
//
//	units   3 0 0 1 5 2 0 0 1 4 2 0 0 0 1 7 2 │ 1 ...
//	        ├─────────────── Per ───────────────┤
type session struct {
	params *sessionParams
	last   int64 // time of the latest claim
	weight int64 // number of sessions that it represents in the sample

	meter    meter
	minBurst int64

	bins [binsPerPer + 1]int64
	bin  int64 // number of the bin of the latest claim
	sum  int64
	peak int64

	rejected   bool  // at least once
	inStreak   bool  // the latest claim was rejected
	rejectedAt int64 // time of the latest rejection
}

const (
	binsPerPer  = 16
	maxUnits    = 1 << 53 // maximum units of a claim, so that sums do not overflow
	maxBinUnits = 1 << 57
)

// A sessionParams describes the limit against which sessions are measured.
type sessionParams struct {
	rate         drainRate
	binWidth     int64 // nanoseconds
	returnWithin int64 // a later grant does not end a streak of rejections
}

func newSessionParams(l throttle.Limit, returnWithin int64) *sessionParams {
	per := int64(l.Per)
	if returnWithin <= 0 {
		returnWithin = ticks.Add(per, per)
	}
	return &sessionParams{rate: drainRateOf(l), binWidth: (per + binsPerPer - 1) / binsPerPer, returnWithin: returnWithin}
}

// begin makes v a new session that represents weight sessions.
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

// advance makes bin the latest bin. The bins that it clears are more than a Per old.
func (v *session) advance(bin int64) {
	if bin-v.bin > binsPerPer {
		v.bins, v.sum, v.bin = [binsPerPer + 1]int64{}, 0, bin
	}
	for v.bin < bin {
		v.bin++
		b := &v.bins[binIndex(v.bin)]
		v.sum -= *b
		*b = 0
	}
}

// binIndex returns the index of a bin in session.bins.
func binIndex(bin int64) int64 {
	if s := bin % (binsPerPer + 1); s >= 0 {
		return s
	}
	return bin%(binsPerPer+1) + binsPerPer + 1
}

// addDecision updates the streak of rejections. It returns 1 as returned if a streak has ended in a
// grant within returnWithin, and 1 as abandoned if a streak has ended otherwise.
func (v *session) addDecision(rejected bool, now int64) (returned, abandoned int64) {
	now = max(now, v.last)
	if v.inStreak {
		switch expired := v.streakExpired(now); {
		case expired:
			abandoned = 1
		case !rejected:
			returned = 1
		}
	}
	if v.inStreak = rejected; rejected {
		v.rejected, v.rejectedAt = true, now
	}
	return returned, abandoned
}

// resetTotals clears the results of v, but keeps its current level and bins.
func (v *session) resetTotals() { v.minBurst, v.peak, v.rejected = v.meter.level, v.sum, false }

// streakExpired reports whether a grant at now is too late to end a streak of rejections.
func (v *session) streakExpired(now int64) bool { return now-v.rejectedAt > v.params.returnWithin }

// expired implements tableRecord. It reports whether no claim of v affects the limit at now.
func (v *session) expired(now int64) bool {
	return now-v.last > (binsPerPer+1)*v.params.binWidth && v.meter.until(0, v.params.rate) <= now && !(v.inStreak && !v.streakExpired(now))
}
