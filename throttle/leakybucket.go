package throttle

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/ticks"
)

// A LeakyBucketConfig configures NewLeakyBucket. Count units leak out every Per; Burst
// units are granted without a wait.
type LeakyBucketConfig struct {
	Limit Limit

	// Queue is the number of units that may wait in addition to Burst. The value math.MaxInt64
	// means as many as Claim.Ahead allows. Zero means none.
	Queue int64

	// Split means that the units of a claim are used one by one, such as packets, and not at one
	// instant. A claim may then be as large as Burst and Queue together, not only as large as
	// Burst, and its Decision.Wait is that of its last unit.
	Split bool
}

// Validate returns an error that states the invalid field if l is invalid.
func (l LeakyBucketConfig) Validate() error {
	if l.Queue < 0 {
		return fmt.Errorf("throttle: leaky bucket %q: Queue is %d: it must not be negative", l.Limit.Name, l.Queue)
	}
	return l.Limit.Validate()
}

type leakyBucket struct {
	clocked
	queue int64 // LeakyBucketConfig.Queue
	split bool  // LeakyBucketConfig.Split

	mu       sync.Mutex
	bookings bookings // guarded by mu

	// take and giveBack use them without the lock, see the method lock.
	state      atomic.Pointer[bucketState] // bookings.state
	lastBooked atomic.Int64                // latest reading at which a claim granted under the lock may start; ticks.Never: none
}

// NewLeakyBucket returns a limiter that books ahead: ReserveAhead grants a claim that is too
// early for the rate, with a Decision.Wait. Claims may be used at the rate of the limit, in the
// order in which they were granted.
//
//	Burst 1, Queue 3, one unit each interval, five claims at the same time:
//
//	  now
//	───┼───────┬───────┬───────┬──────────▶ time
//	   A       B       C       D           E is rejected until B may be used
//	   |<-Wait of B->|
//
// With a Queue of 0, and for Reserve, it is a token bucket. In the terms of
// nginx, burst=5 is a Burst of 1 and a Queue of 5; burst=5 delay=3 is a Burst of 4 and a
// Queue of 2; burst=5 nodelay is a Burst of 6 and a Queue of 0. [NewNginx] also rounds as
// nginx does.
//
// Book ahead only if this limit alone paces the claims. Otherwise wait with a queue.Queue,
// which lets no more than Queue units wait and rejects the next claim.
//
// Invariant: within any span W no more than burst + rate*W units are used and kept, where
// a claim is used Decision.Wait after Decision.At; with Split, Queue units more. Waits are
// rounded up to whole nanoseconds: two claims may be used up to one nanosecond closer together.
//
// Limitations: claims that are booked behind an Unused one keep their positions. Of the units
// of the Unused claim, as many are lost as leak between its position and the last one.
//
// Report returns no units of a claim that was granted before the latest SetLimit.
//
// SetLimit keeps the units in the bucket, up to the new burst, and the booked positions.
//
// It panics if l is invalid.
func NewLeakyBucket(l LeakyBucketConfig) Adjustable {
	must(l.Validate(), "NewLeakyBucket")
	e := newBucketState(l.Limit, 0)
	b := &leakyBucket{clocked: clocked{ticks.NewTimeline()}, queue: l.Queue, split: l.Split, bookings: bookings{e, ticks.Never, ticks.Never}}
	b.state.Store(e)
	b.lastBooked.Store(ticks.Never)
	return b
}

// lock locks b.mu, and closes the tat for take and giveBack until unlock is called. It returns the
// tat, and given, or the reading of the latest grant if that is later.
func (b *leakyBucket) lock(given int64) (now, tat int64) {
	b.mu.Lock()
	tat = b.bookings.state.tat.Swap(gcra.Closed)
	return max(given, b.bookings.state.last.Load()), tat
}

// unlock ends a change that lock began: the tat is now the given one.
func (b *leakyBucket) unlock(tat int64) {
	b.bookings.state.tat.Store(tat)
	if b.state.Load() != b.bookings.state {
		b.state.Store(b.bookings.state)
	}
	b.mu.Unlock()
}

// Take reports whether n units, a positive number, may be used as of now, and takes them. A zero
// now is read from the clock.
func (b *leakyBucket) Take(now time.Time, n int64) bool {
	e, _, _, ok := b.take(n, b.time.Read(now))
	if e == nil {
		d, err := b.Reserve(context.Background(), Claim{Cost: n, Now: now})
		return err == nil && d.OK
	}
	return ok
}

// take takes n units without the lock if they may be used as of given, or of the latest grant if
// that is later. It returns the bucketState and the reading on which it decided, and the number
// of ticks then taken from the window. e is nil if the lock is needed to decide. It records no
// position: as that is not in the future, nothing depends on it.
func (b *leakyBucket) take(n, given int64) (e *bucketState, now, taken int64, ok bool) {
	for {
		e = b.state.Load()
		old := e.tat.Load()
		now = max(given, e.last.Load())
		if old == gcra.Closed || !e.Covers(now) {
			return nil, now, 0, false
		}
		tick := e.Ticks(now)
		tat := max(old, tick)
		if n <= 0 || n > e.Burst || tat-tick > e.Window-n*e.Interval {
			return e, now, tat - tick, false
		}
		if tat += n * e.Interval; e.tat.CompareAndSwap(old, tat) {
			ticks.StoreMax(&e.last, now)
			return e, now, tat - tick, true
		}
	}
}

func (b *leakyBucket) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n := cmp.Or(c.Cost, 1) // not Claim.Units, which copies c
	if n < 0 {
		return d, ErrCost
	}
	given := b.time.Read(c.Now)
	if !c.DryRun {
		if e, now, taken, ok := b.take(n, given); ok {
			d.OK, d.Policy, d.At, d.Grant = true, e.policy, b.time.Stamp(now, given, c.Now), e.version<<remainderBits
			b.describe(e, &d, taken)
			return d, nil
		}
	}
	now, before := b.lock(given)
	p, tat := b.bookings.covering(now, before)
	e, tick := p.state, p.state.Ticks(now)
	d.Policy, d.At = e.policy, b.time.Stamp(now, given, c.Now)
	taken := max(tat, tick) - tick
	wait, cost, longest := int64(math.MaxInt64), ticks.Mul(n, e.Interval), b.maxWaitTicks(e, c.Ahead)
	if n <= b.largest(e) && cost-e.Window <= longest {
		wait = max(ticks.Add(taken, cost-e.Window), 0)
	}
	switch d.OK = wait <= longest; {
	case wait == math.MaxInt64:
		d.Wait = Forever
	case !d.OK:
		d.Wait = e.Duration(wait - longest)
	default:
		d.Wait = e.Duration(wait)
		d.Grant = e.version<<remainderBits | uint64(int64(d.Wait)*e.Scale-wait)
		if !c.DryRun {
			taken += cost
			p.book(tick+wait, cost)
			b.bookings, before = p, tick+taken
			ticks.StoreMax(&b.lastBooked, ticks.Add(now, int64(d.Wait)))
			ticks.StoreMax(&e.last, now)
		}
	}
	b.unlock(before)
	b.describe(e, &d, taken)
	d.boundQueue(&c, b.queue)
	d.setFresh(&c)
	return d, nil
}

// maxWaitTicks returns how many ticks of e a claim may wait that accepts a wait of w.
func (b *leakyBucket) maxWaitTicks(e *bucketState, w time.Duration) int64 {
	queued := min(ticks.Mul(b.queue, e.Interval), gcra.MaxTicks/2-e.Window)
	return min(queued, ticks.Mul(max(int64(w), 0), e.Scale))
}

// largest returns the number of units of the largest claim that can be granted.
func (b *leakyBucket) largest(e *bucketState) int64 {
	if b.split {
		return ticks.Add(e.Burst, b.queue)
	}
	return e.Burst
}

// describe sets in d the state of a bucket from which taken ticks are taken.
func (b *leakyBucket) describe(e *bucketState, d *Decision, taken int64) {
	d.Limit, d.Per = b.largest(e), e.RefillTime
	d.Remaining, d.ResetAfter = e.State(taken)
	if b.split {
		whole := e.Window + b.maxWaitTicks(e, Forever)
		d.Remaining, d.Per = max(whole-taken, 0)/e.Interval, e.Duration(whole)
	}
}

// Report implements Limiter: it corrects the cost of the claim. If it was more than claimed,
// later claims wait longer.
func (b *leakyBucket) Report(_ context.Context, c Claim, d Decision, f Feedback) {
	extra := f.ExtraCost(c, d)
	if extra == 0 {
		return
	}
	given, acts := b.time.Read(f.Now), ticks.Add(b.time.Read(d.At), int64(d.Wait))
	if extra < 0 && b.giveBack(-extra, given, acts, d.Grant) {
		return
	}
	now, tat := b.lock(given)
	b.bookings, tat = b.bookings.covering(now, tat)
	p, e := &b.bookings, b.bookings.state
	switch {
	case extra > 0:
		b.unlock(min(ticks.Add(max(tat, e.Ticks(now)), ticks.Mul(extra, e.Interval)), gcra.MaxTicks))
		return
	case !e.Covers(acts) || d.Grant>>remainderBits != e.version: // nothing can be returned
		b.unlock(tat)
		return
	}
	position := e.Ticks(acts) - int64(d.Grant&(1<<remainderBits-1))
	lost := max(p.last, e.Ticks(now)) - position
	cost := ticks.Mul(-extra, e.Interval)
	back := cost
	if lost > 0 && b.split {
		back = min(back, e.Window) // what its units free one by one does not add up
	}
	switch {
	case f.State != Unused:
		p.lastGap = p.last // the claim keeps its position, but has fewer units than lie between it and the previous one
	case lost == 0:
		p.last = max(position-cost, p.lastGap)
	}
	b.unlock(ticks.Sub(tat, max(back-lost, 0)))
}

// giveBack returns n units of a claim that started at acts, less those that leaked since. It
// reports false if that needs the lock: if a claim may be booked that has not started yet, or
// the units may not be returned.
func (b *leakyBucket) giveBack(n, given, acts int64, grant uint64) bool {
	for {
		e := b.state.Load()
		old := e.tat.Load()
		now := max(given, e.last.Load())
		if old == gcra.Closed || max(acts, b.lastBooked.Load()) > now || grant != e.version<<remainderBits || n > e.Burst || !e.Covers(now) || !e.Covers(acts) {
			return false
		}
		back := n*e.Interval - (e.Ticks(now) - e.Ticks(acts))
		if back <= 0 || e.tat.CompareAndSwap(old, ticks.Sub(old, back)) {
			return true
		}
	}
}

func (b *leakyBucket) Traits() Traits { return bookingTraits(b.queue > 0) }

// Limit returns the limit in force.
func (b *leakyBucket) Limit() Limit { return b.state.Load().limit }

func (b *leakyBucket) SetLimit(l Limit) error { return b.SetLimitAt(time.Time{}, l) }

// SetLimitAt is SetLimit as of now, also for claims with an older Claim.Now. A zero now is read
// from the clock.
func (b *leakyBucket) SetLimitAt(now time.Time, l Limit) error {
	if err := l.Validate(); err != nil {
		return err
	}
	last, tat := b.lock(b.time.Read(now))
	b.bookings = b.bookings.withLimit(l, last, tat)
	b.bookings.state.last.Store(last)
	b.unlock(b.bookings.state.tat.Load())
	return nil
}

// Available returns the number of units in the bucket as of now, including fractions; less than
// 0 while units are booked that are not restored yet. A zero now is read from the clock.
func (b *leakyBucket) Available(now time.Time) float64 {
	given := b.time.Read(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	r := max(given, b.bookings.state.last.Load())
	p, tat := b.bookings.covering(r, b.bookings.state.tat.Load())
	tick := p.state.Ticks(r)
	free := p.state.Window - (max(tat, tick) - tick)
	return float64(free) / float64(p.state.Interval)
}

// Drain takes all units that are in the bucket as of now, including fractions. A zero now is
// read from the clock.
func (b *leakyBucket) Drain(now time.Time) {
	last, tat := b.lock(b.time.Read(now))
	b.bookings, tat = b.bookings.covering(last, tat)
	e := b.bookings.state
	ticks.StoreMax(&e.last, last)
	b.unlock(max(tat, e.Ticks(last)+e.Window))
}

// bookings are the positions of the booked claims, as far as Unused claims need them.
//
//	      tat less the window
//	────────────┼──┼──┼─────────┼─────▶ ticks of state
//	            │  │  lastGap   last
//	            │  a claim that filled a gap, as did the one at lastGap
//	            position of the next claim
//
// Usually no claim is booked behind the position of the next claim, and last is the latest
// claim before it. Gaps are positions of canceled claims.
//
// Invariant: no claim is booked behind last. If the claim at last is canceled, no claim is
// booked behind both the position where its units began and lastGap.
type bookings struct {
	state   *bucketState // ticks and tat
	last    int64        // latest booked position
	lastGap int64        // latest of the positions that did not directly follow the latest one when they were booked
}

// remainderBits is the number of low bits of a Grant that hold by how many ticks its
// position is before At + Wait, which is in whole nanoseconds. The other bits hold the
// version of the limit. Params.Scale is at most 1<<24.
const remainderBits = 24

// covering returns p, whose tat is given, and its tat in ticks that can express now.
func (p bookings) covering(now, tat int64) (bookings, int64) {
	if p.state.Covers(now) {
		return p, tat
	}
	p = p.withLimit(p.state.limit, now, tat)
	return p, p.state.tat.Load()
}

// withLimit returns p, whose tat is given, as of now in ticks of limit l. All positions stay at the same times.
func (p bookings) withLimit(l Limit, now, tat int64) bookings {
	e := p.state.next(l, now, tat)
	elapsed := ticks.Mul(ticks.Sub(now, p.state.Origin), p.state.Scale)
	move := func(position int64) int64 {
		return ticks.MulDivUp(max(ticks.Sub(position, elapsed), 0), e.Scale, p.state.Scale)
	}
	return bookings{e, move(p.last), move(p.lastGap)}
}

// book records that a claim at position takes the cost ticks before it. Usually it
// directly follows the last one and becomes the last.
func (p *bookings) book(position, cost int64) {
	if position <= p.last {
		p.lastGap = max(p.lastGap, position)
		return
	}
	if p.last > position-cost {
		p.lastGap = max(p.lastGap, p.last)
	}
	p.last = position
}
