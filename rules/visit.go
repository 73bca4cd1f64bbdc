package rules

import "github.com/heed-go/heed/throttle"

// A visit is what one key asked for, from a first claim until nothing of it matters any
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
type visit struct {
	of     *measure
	last   int64 // reading of the latest claim
	stands int64 // for so many visits, as others are not followed

	meter meter
	needs int64

	bins [binsPerPer + 1]int64
	bin  int64 // which one the latest claim fell into
	sum  int64
	peak int64

	refused bool  // at least once
	waiting bool  // the latest claim was refused
	since   int64 // when it was
}

const (
	binsPerPer = 16
	mostUnits  = 1 << 53 // of a claim, so that sums do not overflow
	mostInBin  = 1 << 57
)

// A measure is the limit that visits are measured by.
type measure struct {
	pace  pace
	width int64 // of a bin
	later int64 // after so long a grant does not end a streak of refusals
}

func newMeasure(l throttle.Limit, later int64) *measure {
	per := int64(l.Per)
	if later <= 0 {
		later = addSat(per, per)
	}
	return &measure{pace: paceOf(l), width: (per + binsPerPer - 1) / binsPerPer, later: later}
}

// begin makes v a new visit, one of so many.
func (v *visit) begin(m *measure, now, stands int64) {
	*v = visit{of: m, last: now, stands: stands, meter: meter{at: now}, bin: floorDiv(now, m.width)}
}

// asked counts a claim of n units.
func (v *visit) asked(n, now int64) {
	n, now = min(n, mostUnits), max(now, v.last)
	v.last = now
	v.needs = max(v.needs, v.meter.add(n, now, v.of.pace))
	v.advance(floorDiv(now, v.of.width))
	b := &v.bins[slotOf(v.bin)]
	was := *b
	*b = min(was+n, mostInBin)
	v.sum += *b - was
	v.peak = max(v.peak, v.sum)
}

// advance makes bin the latest one. Those that it takes over are more than a Per old.
func (v *visit) advance(bin int64) {
	if bin-v.bin > binsPerPer {
		v.bins, v.sum, v.bin = [binsPerPer + 1]int64{}, 0, bin
		return
	}
	for v.bin < bin {
		v.bin++
		b := &v.bins[slotOf(v.bin)]
		v.sum -= *b
		*b = 0
	}
}

// slotOf returns where a bin is kept.
func slotOf(bin int64) int64 {
	if s := bin % (binsPerPer + 1); s >= 0 {
		return s
	}
	return bin%(binsPerPer+1) + binsPerPer + 1
}

// decided follows streaks of refusals. It returns 1 for each one that has ended: in a
// grant that came soon enough, or without.
func (v *visit) decided(refused bool, now int64) (returned, gaveUp int64) {
	now = max(now, v.last)
	if v.waiting {
		switch late := v.tooLate(now); {
		case late:
			gaveUp = 1
		case !refused:
			returned = 1
		}
	}
	if v.waiting = refused; refused {
		v.refused, v.since = true, now
	}
	return returned, gaveUp
}

// forget forgets what v has shown so far, but not where it stands.
func (v *visit) forget() { v.needs, v.peak, v.refused = v.meter.level, v.sum, false }

// tooLate reports whether a grant at now would not end a streak of refusals any more.
func (v *visit) tooLate(now int64) bool { return now-v.since > v.of.later }

// over implements record: nothing that v has asked for would count at now.
func (v *visit) over(now int64) bool {
	return now-v.last > (binsPerPer+1)*v.of.width && v.meter.until(0, v.of.pace) <= now && !(v.waiting && !v.tooLate(now))
}

// floorDiv returns a/b rounded down, for positive b.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
