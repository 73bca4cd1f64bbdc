package throttle

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// TickQueueConfig says how a TickQueue is served.
type TickQueueConfig struct {
	Limit            // Count ticks every Per, each of which serves one unit; Burst must be 0 or Count
	Queue  int64     // units that may wait; must be positive
	Anchor time.Time // the instant of one tick, from which all others count; zero: the creation
}

// Validate returns an error that says what to change if t can never work.
func (t TickQueueConfig) Validate() error {
	if t.Queue <= 0 {
		return fmt.Errorf("throttle: tick queue %q: Queue is %d: it must be positive: every claim waits for a tick", t.Name, t.Queue)
	}
	if err := t.checkNoBurst("tick queue"); err != nil {
		return err
	}
	return t.Limit.Validate()
}

// TickQueue is a leaky bucket that drips: a queue from which one unit is served at
// each tick, whether or not somebody came in time for the one before. Even the
// first in line waits for a tick, so that work starts at instants known beforehand.
//
//	ticks  ┼───────┼───────┼───────┼───────┼──▶ time
//	         ↑↑            A ↑     B       C
//	         A B come:     tick    C comes, and is served at the next tick
//	         served here and here
//
// Ticks are at anchor + k*Per/Count, which is exact: a thousand thirds of a second
// later they have not drifted. Whoever comes at a tick is too late for it.
//
// All claims wait. One with Claim.MaxWait is granted before its tick, with the time until
// then as Decision.Wait; one that Waits, as those of a queue.Queue do, is granted at its tick.
// Others are refused. LeakyBucket grants immediately where it can.
//
// Invariant: no two units share a tick, and no more than Queue units wait. A claim
// acts at the tick of its last unit.
//
// The odd case is Cancel: whoever stands behind keeps his tick, so that only the
// last in line gives ticks back, those that have not passed. A refund in Observe
// likewise frees ticks only before a claim acts.
type TickQueue struct {
	base
	config     TickQueueConfig
	anchor     int64
	lastBooked int64 // number of the latest tick that is taken, counted from the anchor
}

// NewTickQueue returns an empty queue. A nil clk is the system clock. It panics if
// t is invalid.
func NewTickQueue(t TickQueueConfig, clk Clock) *TickQueue {
	must(t.Validate(), "NewTickQueue")
	q := &TickQueue{base: newBase(ticks.NewTimeline(clk), t.policy()), config: t, lastBooked: math.MinInt64}
	if !t.Anchor.IsZero() {
		q.anchor = q.read(t.Anchor)
	}
	return q
}

// Reserve implements Limiter.
func (q *TickQueue) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n, r, err := q.begin(&c, &d)
	if err != nil {
		return d, err
	}
	defer q.mu.Unlock()
	d.Limit, d.Per = q.config.Queue, q.queueTime()
	if c.Waits && c.MaxWait <= 0 {
		return q.reserveWaiting(d, c, n, r.now), nil
	}
	now, tick := r.now, q.tickAt(r.now)
	from := max(q.lastBooked, tick)
	to := ticks.Add(from, n)
	earliestByWait := ticks.Sub(q.tickTime(to), max(int64(c.MaxWait), 0)) // when the place is near enough
	earliestByQueue := q.tickTime(ticks.Sub(to, q.config.Queue))          // when it is free
	switch wait := ticks.Sub(max(earliestByWait, earliestByQueue), now); {
	case n > q.config.Queue, earliestByWait >= q.tickTime(ticks.Add(from, 1)): // not even if nobody else waits
		d.Wait = Forever
	case wait > 0:
		d.Wait = time.Duration(wait)
	default:
		d.OK, d.Wait, d.Grant = true, time.Duration(ticks.Sub(q.tickTime(to), now)), uint64(to)
		if !c.DryRun {
			q.lastBooked, q.last, from = to, now, to
		}
	}
	d.Remaining = max(q.config.Queue-ticks.Sub(from, tick), 0)
	if from > tick {
		d.ResetAfter = time.Duration(ticks.Sub(q.tickTime(from), now))
	}
	return d, nil
}

// queueTime returns how long a full queue takes.
func (q *TickQueue) queueTime() time.Duration {
	return time.Duration(ticks.MulDivCeil(q.config.Queue, int64(q.config.Per), q.config.Count))
}

// reserveWaiting completes d for a claim of n units by a caller that Waits: it is granted at its last
// tick, instead of before. Its ticks are those after all that are taken and after the
// instant at which the wait began; what others could have used is not made up for.
func (q *TickQueue) reserveWaiting(d Decision, c Claim, n, now int64) Decision {
	tick, from := q.tickAt(now), max(q.lastBooked, q.tickAt(ticks.Sub(now, int64(c.Waited))))
	switch to := ticks.Add(from, n); {
	case n > q.config.Queue:
		d.Wait = Forever
	case to > tick:
		d.Wait = time.Duration(ticks.Sub(q.tickTime(to), now))
	default:
		if d.OK, d.Grant = true, uint64(tick); !c.DryRun {
			q.lastBooked, q.last = tick, now
		}
	}
	d.Remaining = max(q.config.Queue-max(ticks.Sub(q.lastBooked, tick), 0), 0)
	return boundedBy(d, c, q.config.Queue)
}

// Cancel implements Limiter.
func (q *TickQueue) Cancel(_ context.Context, c Claim, d Decision) {
	if n, err := c.Units(); err == nil && d.OK {
		q.refund(n, d)
	}
}

// Observe implements Observer: it settles a cost that was known only afterwards.
// What the claim cost less comes back as in Cancel; what it cost more takes the
// ticks after all that are taken.
func (q *TickQueue) Observe(_ context.Context, c Claim, d Decision, f Feedback) {
	switch extra := f.ExtraCost(c, d); {
	case extra < 0:
		q.refund(-extra, d)
	case extra > 0:
		q.mu.Lock()
		defer q.mu.Unlock()
		q.lastBooked = ticks.Add(max(q.lastBooked, q.tickAt(q.latest(f.Now))), extra)
	}
}

// refund frees the last n ticks of the claim granted by d, if it is the last in
// line.
func (q *TickQueue) refund(n int64, d Decision) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if int64(d.Grant) == q.lastBooked && d.Wait > 0 { // else its tick has come
		q.lastBooked = ticks.Sub(q.lastBooked, n)
	}
}

// tickAt returns the number of the latest tick at or before now.
func (q *TickQueue) tickAt(now int64) int64 {
	return ticks.MulDivDown(ticks.Sub(now, q.anchor), q.config.Count, int64(q.config.Per))
}

// tickTime returns the instant of a tick, rounded up.
func (q *TickQueue) tickTime(tick int64) int64 {
	return ticks.Add(q.anchor, ticks.MulDivCeil(tick, int64(q.config.Per), q.config.Count))
}

// Idle implements Idler: all ticks that were taken have passed.
func (q *TickQueue) Evictable(now time.Time) bool {
	at := q.time.Read(now)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lastBooked <= q.tickAt(max(at, q.last))
}
