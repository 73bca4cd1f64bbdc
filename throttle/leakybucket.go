package throttle

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/heed-go/heed/internal/gcra"
	"github.com/heed-go/heed/internal/ticks"
)

// A LeakyBucketConfig says how a LeakyBucket leaks and what it holds.
type LeakyBucketConfig struct {
	Limit       // Count units leak out every Per; Burst units pass without waiting
	Queue int64 // units that may wait behind those; math.MaxInt64: as many as Claim.MaxWait allows

	// Split says that the units of a claim may leave one by one, as packets do. A
	// claim may then be as large as Burst and Queue together, and is to act when
	// its last unit leaves. Otherwise all of a claim acts at one instant, and it
	// may not be larger than Burst.
	Split bool
}

// Validate returns an error that says what to change if l can never work.
func (l LeakyBucketConfig) Validate() error {
	if l.Queue < 0 {
		return fmt.Errorf("throttle: leaky bucket %q: Queue is %d: it must not be negative", l.Name, l.Queue)
	}
	return l.Limit.Validate()
}

// LeakyBucket shapes: who comes too early is given a place in line instead of a
// refusal, as far as Claim.MaxWait allows, and the place is its own. Claims leave
// at the rate of the limit, in the order in which they came.
//
//	Burst 1, Queue 3, one unit each interval, five claims at once:
//
//	  now
//	───┼───────┬───────┬───────┬──────────▶ time
//	   A       B       C       D           E does not fit, and waits for B to leave
//	   |<-Wait of B->|
//
// With Queue 0, and for claims that do not wait, it is a TokenBucket. As nginx says
// it, burst=5 is Burst 1 and Queue 5; burst=5 delay=3 is Burst 4 and Queue 2;
// burst=5 nodelay is Burst 6 and Queue 0. [Nginx] also rounds as nginx does.
//
// Use it where claims are paced by this one limit. Where others have a say (AllOf,
// a response with Retry-After), a place booked before has no effect: wait with a
// queue.Queue, which lets no more than Queue units wait and refuses the next claim.
//
// Invariant: within any span W no more than burst + rate*W units act and are kept,
// where a claim acts Decision.Wait after Decision.At; with Split, queue more. Places
// are exact, but waits are rounded up to whole nanoseconds: two acts may be up to
// one nanosecond closer than their places are.
//
// The odd case is Cancel while others have booked behind. They keep their places,
// so what would let a new claim act in one of them is not given back: of the units
// of the claim, as many as leave between its place and the last one. That takes two
// numbers: tat, which says where the next claim stands, and latest, the last place
// given. One number would not tell booked units from used ones.
//
// golang.org/x/time/rate has the same rule, but forgets who stands behind when a gap
// in the line is filled, and may then give back 15 units for 1. A third number, held,
// remembers the last who would be forgotten.
type LeakyBucket struct {
	base
	config   LeakyBucketConfig
	bookings bookings
}

// NewLeakyBucket returns an empty bucket. A nil clk is the system clock. It panics
// if l is invalid.
func NewLeakyBucket(l LeakyBucketConfig, clk Clock) *LeakyBucket {
	must(l.Validate(), "NewLeakyBucket")
	return &LeakyBucket{base: newBase(ticks.NewTimeline(clk), l.policy()), config: l, bookings: bookings{state: newBucketState(l.Limit, 0)}}
}

// Reserve implements Limiter.
func (b *LeakyBucket) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n, r, err := b.begin(&c, &d)
	if err != nil {
		return d, err
	}
	defer b.mu.Unlock()
	p := b.bookings.covering(r.now)
	e, tick := p.state, p.state.Ticks(r.now)
	taken := max(e.tat.Load(), tick) - tick
	d.Limit = b.config.maxClaim(e)
	wait, cost, longest := int64(math.MaxInt64), ticks.Mul(n, e.Interval), b.config.maxWaitTicks(e, c.MaxWait)
	if n <= d.Limit && cost-e.Window <= longest {
		wait = max(ticks.Add(taken, cost-e.Window), 0)
	}
	switch d.OK = wait <= longest; {
	case wait == math.MaxInt64:
		d.Wait = Forever
	case !d.OK:
		d.Wait = e.Duration(wait - longest)
	default:
		d.Wait, d.Grant = p.encodeGrant(wait)
		if !c.DryRun {
			taken += cost
			e.tat.Store(tick + taken)
			p.book(tick+wait, cost)
			b.bookings, b.last = p, r.now
		}
	}
	return boundedBy(b.config.describe(e, d, taken), c, b.config.Queue), nil
}

// maxClaim returns the largest claim that can be granted in e.
func (l *LeakyBucketConfig) maxClaim(e *bucketState) int64 {
	if l.Split {
		return ticks.Add(e.Burst, l.Queue)
	}
	return e.Burst
}

// maxWaitTicks returns how many ticks of e a claim that accepts w may wait.
func (l *LeakyBucketConfig) maxWaitTicks(e *bucketState, w time.Duration) int64 {
	queued := min(ticks.Mul(l.Queue, e.Interval), gcra.MaxTicks/2-e.Window)
	return min(queued, ticks.Mul(max(int64(w), 0), e.Scale))
}

// describe adds to d the state of a bucket from which so many ticks are taken.
func (l *LeakyBucketConfig) describe(e *bucketState, d Decision, taken int64) Decision {
	d = e.describe(d, taken)
	if l.Split {
		whole := e.Window + l.maxWaitTicks(e, Forever)
		d.Remaining, d.Per = max(whole-taken, 0)/e.Interval, e.Duration(whole)
	}
	return d
}

// Cancel implements Limiter.
func (b *LeakyBucket) Cancel(_ context.Context, c Claim, d Decision) {
	n, err := c.Units()
	if err != nil || !d.OK {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if position, last := b.refund(n, c.Now, d); last {
		b.bookings.last = max(position-ticks.Mul(n, b.bookings.state.Interval), b.bookings.lastGap)
	}
}

// Observe implements Observer: it settles a cost that was known only afterwards.
// What the claim cost less comes back as in Cancel; what it cost more is taken from
// those who come next.
func (b *LeakyBucket) Observe(_ context.Context, c Claim, d Decision, f Feedback) {
	switch extra := f.ExtraCost(c, d); {
	case extra > 0:
		b.take(extra, f.Now)
	case extra < 0:
		b.mu.Lock()
		defer b.mu.Unlock()
		b.refund(-extra, f.Now, d)
		b.bookings.lastGap = b.bookings.last // the claim still stands there, with fewer units than are between it and the one before
	}
}

// take takes n units, granted or not.
func (b *LeakyBucket) take(n int64, asOf time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.latest(asOf)
	b.bookings = b.bookings.covering(now)
	e := b.bookings.state
	from := max(e.tat.Load(), e.Ticks(now))
	e.tat.Store(min(ticks.Add(from, ticks.Mul(n, e.Interval)), gcra.MaxTicks))
}

// SetLimit replaces the limit. The units in the bucket stay, down to the fraction,
// as far as the new burst has room for them, and so do the places in line. The
// error is that of l.Validate, and then nothing has changed.
func (b *LeakyBucket) SetLimit(l Limit) error {
	if err := l.Validate(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bookings, b.policy = b.bookings.withLimit(l, b.latest(time.Time{})), l.policy()
	return nil
}

// refund gives back n units of the claim granted by d. It returns the place of
// the claim, and whether it is the last in line.
func (b *LeakyBucket) refund(n int64, asOf time.Time, d Decision) (position int64, last bool) {
	now := b.latest(asOf)
	b.bookings = b.bookings.covering(now)
	e := b.bookings.state
	acts := ticks.Add(b.time.Read(d.At), int64(d.Wait))
	position, lost := b.bookings.ticksBehind(d.Grant, acts, max(b.bookings.last, e.Ticks(now)))
	back := ticks.Mul(n, e.Interval)
	if lost > 0 && b.config.Split {
		back = min(back, e.Window) // what its units leave free one by one does not add up
	}
	if back -= lost; back > 0 {
		e.tat.Store(ticks.Sub(e.tat.Load(), back))
	}
	return position, lost == 0
}
