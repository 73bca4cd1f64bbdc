package throttle

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

const (
	maxWindow       = 1 << 60       // ticks; leaves room to add a time and a window
	maxTicks        = 1 << 62       // ticks; the furthest tat
	maxScale        = 1 << 24       // ticks per nanosecond; an era then covers at least two minutes
	maxFormerLimits = 8             // how many former limits are remembered
	tatClosed       = math.MaxInt64 // tat of an era that has ended
)

// A gcra is a stretch of time in which a TokenBucket's limit stays the same. A
// new one begins when the limit changes, and when ticks would overflow.
//
// Ticks make the arithmetic exact. With g the greatest common divisor of Count
// and Per in nanoseconds, a unit takes interval = Per/g ticks and a nanosecond
// has scale = Count/g of them: both whole, so 3 a second is 3 a second for ever.
// Where that would not fit, scale is lowered and interval rounded up, which makes
// the rate lower, never higher: by less than a millionth for rates up to 16 units a
// nanosecond and bursts up to 5e11. No burst is more than 2^60 units.
type gcra struct {
	limit        Limit
	version      uint64 // of the limit; Decision.Grant of what was granted under it
	policy       string
	burst        int64
	interval     int64         // ticks that a unit takes to come back
	window       int64         // ticks that burst units take
	refillTime   time.Duration // the same as a duration, rounded up
	scale        int64         // ticks in a nanosecond
	horizon      int64         // nanoseconds from origin that ticks can express
	origin       int64         // where tick 0 is on the timeline
	limitSince   int64         // when this limit began to hold: before origin if only ticks ran out
	formerLimits []formerLimit // the limits before, newest first; never changed

	// tat is in ticks since origin. Each grant moves it by one CAS; last, the
	// latest reading granted at, only decides how an older reading is seen, so
	// that the two need not change together.
	tat  atomic.Int64
	last atomic.Int64
}

// A formerLimit is what is remembered of a former limit.
type formerLimit struct {
	version                uint64
	since, interval, scale int64
	cut                    int64 // its ticks that the limit after it cut from the window
}

// newGCRA returns an era that begins at now, with a full bucket. Its limit holds since
// ever.
func newGCRA(l Limit, now int64) *gcra {
	e := &gcra{limit: l, version: 1, policy: l.policy(), origin: now, limitSince: math.MinInt64}
	e.interval, e.scale = intervalAndScale(l)
	e.burst = min(l.burst(), maxWindow/e.interval)
	e.window = e.burst * e.interval
	e.refillTime = e.duration(e.window)
	e.horizon = maxTicks / 2 / e.scale
	e.tat.Store(math.MinInt64)
	e.last.Store(ticks.Never)
	return e
}

// intervalAndScale returns the ticks of a unit and of a nanosecond under l.
func intervalAndScale(l Limit) (interval, scale int64) {
	g := ticks.GCD(l.Count, int64(l.Per))
	interval, scale = int64(l.Per)/g, l.Count/g
	fit := int64(maxScale)
	if w := float64(l.burst()) * float64(interval); w > maxWindow/2 {
		fit = min(fit, int64(float64(scale)*(maxWindow/2/w)))
	}
	if scale > fit {
		fit = max(fit, 1)
		interval, scale = ticks.MulDivUp(interval, fit, scale), fit
	}
	return interval, scale
}

// next returns the era that follows e from now on under limit l, with the units
// that e had when its tat was tat.
func (e *gcra) next(l Limit, now, tat int64) *gcra {
	n := newGCRA(l, now)
	n.last.Store(e.last.Load())
	taken := int64(0)
	if elapsed := ticks.Sub(now, e.origin); elapsed < e.horizon*2 {
		taken = max(ticks.Sub(tat, ticks.Mul(elapsed, e.scale)), 0)
	}
	if l == e.limit {
		n.version, n.limitSince, n.formerLimits = e.version, e.limitSince, e.formerLimits
	} else {
		n.version, n.limitSince, n.formerLimits = e.version+1, now, e.withFormer(max(e.burst-n.burst, 0)*e.interval)
		free := e.window - taken                                          // below 0: in debt
		taken = n.window - ticks.MulDivDown(free, n.interval, e.interval) // below 0: what the cut takes away
	}
	if taken > 0 {
		n.tat.Store(min(taken, maxTicks))
	}
	return n
}

// withFormer returns the former limits of an era that follows e and cuts so many of
// its ticks from the window.
//
// When there are too many, the oldest two become one that has the faster rate all
// along. So a Cancel across all of them gives back less than it might, never more.
func (e *gcra) withFormer(cut int64) []formerLimit {
	all := append([]formerLimit{{e.version, e.limitSince, e.interval, e.scale, cut}}, e.formerLimits...)
	if len(all) <= maxFormerLimits {
		return all
	}
	a, b := all[maxFormerLimits], all[maxFormerLimits-1]
	first, since := a.version, a.since
	if b.fasterThan(a) {
		a, b = b, a
	}
	a.version, a.since, a.cut = first, since, ticks.Add(a.cut, ticks.MulDivUp(b.cut, a.interval, b.interval))
	return append(all[:maxFormerLimits-1], a)
}

func (a formerLimit) fasterThan(b formerLimit) bool {
	ahi, alo := bits.Mul64(uint64(a.scale), uint64(b.interval))
	bhi, blo := bits.Mul64(uint64(b.scale), uint64(a.interval))
	return ahi > bhi || ahi == bhi && alo > blo
}

// covers reports whether now can be expressed in ticks of e.
func (e *gcra) covers(now int64) bool {
	d := ticks.Sub(now, e.origin)
	return -e.horizon <= d && d <= e.horizon
}

// ticks returns now, which e must cover, in ticks since origin.
func (e *gcra) ticks(now int64) int64 { return (now - e.origin) * e.scale }

// duration returns how long ticks last, rounded up; 0 if they are negative.
func (e *gcra) duration(ticks int64) time.Duration {
	switch {
	case ticks <= 0:
		return 0
	case e.scale == 1:
		return time.Duration(ticks)
	}
	return time.Duration((ticks + e.scale - 1) / e.scale)
}

// describe adds to d the state of a bucket from which so many ticks are taken.
func (e *gcra) describe(d Decision, taken int64) Decision {
	d.Remaining = max(e.window-taken, 0) / e.interval
	d.ResetAfter, d.Per = e.duration(taken), e.refillTime
	return d
}

// recordGrant notes that a claim was granted at now.
func (e *gcra) recordGrant(now int64) {
	for old := e.last.Load(); old < now && !e.last.CompareAndSwap(old, now); {
		old = e.last.Load()
	}
}

// refilledSince says how many of e's ticks a claim granted at from, under limit number
// grant, has been given back by now: by time, also where former limits held in
// between, and by each cut of the burst, which forgives what was taken above the new
// one just as time does.
func (e *gcra) refilledSince(grant uint64, from, now int64) int64 {
	if grant >= e.version {
		return ticks.Mul(ticks.Sub(now, from), e.scale)
	}
	sum, until := ticks.Mul(ticks.Sub(now, max(from, e.limitSince)), e.scale), e.limitSince
	for _, f := range e.formerLimits {
		own := ticks.Add(ticks.Mul(max(ticks.Sub(until, max(from, f.since)), 0), f.scale), f.cut)
		sum = ticks.Add(sum, ticks.MulDivUp(own, e.interval, f.interval))
		if until = f.since; grant >= f.version {
			break
		}
	}
	return sum
}
