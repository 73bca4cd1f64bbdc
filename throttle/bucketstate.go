package throttle

import (
	"math"
	"sync/atomic"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/ticks"
)

// A bucketState is the state of a TokenBucket while its limit stays the same. It is
// replaced when the limit changes, and before ticks would overflow.
type bucketState struct {
	// tat is in ticks since Origin. Each grant changes it with one CAS. last is the latest
	// reading at which a claim was granted. It only replaces older readings, so tat and last
	// need not change atomically together. They come first so that they share a cache line, as the
	// allocator aligns values of this size to 16 bytes: with two lines, two processors that use
	// one bucket take twice as long.
	tat  atomic.Int64
	last atomic.Int64

	limit       Limit
	version     uint64 // version of the limit; Decision.Grant of claims granted under it
	policy      string
	gcra.Params // ticks count from its Origin
}

// newBucketState returns a bucketState of a full bucket with its origin at now.
func newBucketState(l Limit, now int64) *bucketState {
	e := &bucketState{limit: l, version: 1, policy: policyOf(l.Name, l), Params: gcra.New(l.Count, l.Per, l.burst(), now)}
	e.tat.Store(math.MinInt64)
	e.last.Store(ticks.Never)
	return e
}

// next returns the bucketState that replaces e, with the given tat, at now with limit l.
func (e *bucketState) next(l Limit, now, tat int64) *bucketState {
	n := newBucketState(l, now)
	n.last.Store(e.last.Load())
	taken := int64(0)
	if elapsed := ticks.Sub(now, e.Origin); elapsed < e.Horizon*2 {
		taken = max(ticks.Sub(tat, ticks.Mul(elapsed, e.Scale)), 0)
	}
	if l == e.limit {
		n.version = e.version
	} else {
		n.version = e.version + 1
		free := e.Window - taken                                          // negative: in debt
		taken = n.Window - ticks.MulDivDown(free, n.Interval, e.Interval) // negative: units above the new burst, which are lost
	}
	if taken > 0 {
		n.tat.Store(min(taken, gcra.MaxTicks))
	}
	return n
}
