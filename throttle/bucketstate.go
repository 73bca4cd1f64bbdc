package throttle

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/ticks"
)

const maxFormerLimits = 8 // number of former limits that are kept

// A bucketState is the state of a TokenBucket while its limit stays the same. It is
// replaced when the limit changes, and before ticks would overflow.
type bucketState struct {
	limit        Limit
	version      uint64 // version of the limit; Decision.Grant of claims granted under it
	policy       string
	gcra.Params                // ticks count from its Origin
	limitSince   int64         // start of this limit; before Origin if the state was replaced because ticks would overflow
	formerLimits []formerLimit // former limits, newest first; immutable

	// tat is in ticks since Origin. Each grant changes it with one CAS. last is the latest
	// reading at which a claim was granted. It only replaces older readings, so tat and last
	// need not change atomically together.
	tat  atomic.Int64
	last atomic.Int64
}

// A formerLimit describes a former limit.
type formerLimit struct {
	version                uint64
	since, interval, scale int64
	cut                    int64 // its ticks by which the next limit shortened the window
}

// newBucketState returns a bucketState of a full bucket with its origin at now. Its limit
// has no start time.
func newBucketState(l Limit, now int64) *bucketState {
	e := &bucketState{limit: l, version: 1, policy: l.policy(), Params: gcra.New(l.Count, l.Per, l.burst(), now), limitSince: math.MinInt64}
	e.tat.Store(math.MinInt64)
	e.last.Store(ticks.Never)
	return e
}

// next returns the bucketState that replaces e at now with limit l. It has the units that
// e had when its tat was tat.
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
		free := e.Window - taken                                          // negative: in debt
		taken = n.Window - ticks.MulDivDown(free, n.Interval, e.Interval) // negative: units above the new burst, which are lost
	}
	if taken > 0 {
		n.tat.Store(min(taken, gcra.MaxTicks))
	}
	return n
}

// withFormer returns the former limits of the bucketState that replaces e and shortens its
// window by cut ticks.
//
// If there are too many, the two oldest are merged into one with the faster rate. A Cancel
// that spans both may then return fewer units than possible, never more.
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

// describe sets in d the state of a bucket from which taken ticks are taken.
func (e *bucketState) describe(d Decision, taken int64) Decision {
	d.Remaining, d.ResetAfter = e.State(taken)
	d.Per = e.RefillTime
	return d
}

// recordGrant records that a claim was granted at now.
func (e *bucketState) recordGrant(now int64) {
	for old := e.last.Load(); old < now && !e.last.CompareAndSwap(old, now); {
		old = e.last.Load()
	}
}

// refilledSince returns how many ticks of e a claim granted at from, under the limit with
// version grant, has had restored by now. It counts the time under each limit, and each
// reduction of the burst, which forgives the units taken above the new burst as time does.
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
