package throttle

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/ticks"
)

const maxFormerLimits = 8 // how many former limits are remembered

// A bucketState is the state of a TokenBucket during a time in which its limit stays the
// same. A new one begins when the limit changes, and when ticks would overflow.
type bucketState struct {
	limit        Limit
	version      uint64 // of the limit; Decision.Grant of what was granted under it
	policy       string
	gcra.Params                // ticks count from its Origin
	limitSince   int64         // when this limit began to hold: before Origin if only ticks ran out
	formerLimits []formerLimit // the limits before, newest first; never changed

	// tat is in ticks since Origin. Each grant moves it by one CAS; last, the
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

// newBucketState returns a bucketState that begins at now, with a full bucket. Its limit
// holds since ever.
func newBucketState(l Limit, now int64) *bucketState {
	e := &bucketState{limit: l, version: 1, policy: l.policy(), Params: gcra.New(l.Count, l.Per, l.burst(), now), limitSince: math.MinInt64}
	e.tat.Store(math.MinInt64)
	e.last.Store(ticks.Never)
	return e
}

// next returns the era that follows e from now on under limit l, with the units
// that e had when its tat was tat.
func (e *bucketState) next(l Limit, now, tat int64) *bucketState {
	n := newBucketState(l, now)
	n.last.Store(e.last.Load())
	taken := int64(0)
	if elapsed := ticks.Sub(now, e.Origin); elapsed < e.Horizon*2 {
		taken = max(ticks.Sub(tat, ticks.Mul(elapsed, e.Scale)), 0)
	}
	if l == e.limit {
		n.version, n.limitSince, n.formerLimits = e.version, e.limitSince, e.formerLimits
	} else {
		n.version, n.limitSince, n.formerLimits = e.version+1, now, e.withFormer(max(e.Burst-n.Burst, 0)*e.Interval)
		free := e.Window - taken                                          // below 0: in debt
		taken = n.Window - ticks.MulDivDown(free, n.Interval, e.Interval) // below 0: what the cut takes away
	}
	if taken > 0 {
		n.tat.Store(min(taken, gcra.MaxTicks))
	}
	return n
}

// withFormer returns the former limits of an era that follows e and cuts so many of
// its ticks from the window.
//
// When there are too many, the oldest two become one that has the faster rate all
// along. So a Cancel across all of them gives back less than it might, never more.
func (e *bucketState) withFormer(cut int64) []formerLimit {
	all := append([]formerLimit{{e.version, e.limitSince, e.Interval, e.Scale, cut}}, e.formerLimits...)
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

// describe adds to d the state of a bucket from which so many ticks are taken.
func (e *bucketState) describe(d Decision, taken int64) Decision {
	d.Remaining, d.ResetAfter = e.State(taken)
	d.Per = e.RefillTime
	return d
}

// recordGrant notes that a claim was granted at now.
func (e *bucketState) recordGrant(now int64) {
	for old := e.last.Load(); old < now && !e.last.CompareAndSwap(old, now); {
		old = e.last.Load()
	}
}

// refilledSince says how many of e's ticks a claim granted at from, under limit number
// grant, has been given back by now: by time, also where former limits held in
// between, and by each cut of the burst, which forgives what was taken above the new
// one just as time does.
func (e *bucketState) refilledSince(grant uint64, from, now int64) int64 {
	if grant >= e.version {
		return ticks.Mul(ticks.Sub(now, from), e.Scale)
	}
	sum, until := ticks.Mul(ticks.Sub(now, max(from, e.limitSince)), e.Scale), e.limitSince
	for _, f := range e.formerLimits {
		own := ticks.Add(ticks.Mul(max(ticks.Sub(until, max(from, f.since)), 0), f.scale), f.cut)
		sum = ticks.Add(sum, ticks.MulDivUp(own, e.Interval, f.interval))
		if until = f.since; grant >= f.version {
			break
		}
	}
	return sum
}
