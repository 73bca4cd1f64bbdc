package throttle

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A TickQueueConfig configures NewTickQueue. There are Count ticks every Per, at most one per
// nanosecond, each of which serves one unit. Burst must be 0 or Count.
type TickQueueConfig struct {
	Limit Limit

	// Queue is the maximum number of units that wait. It must be positive.
	Queue int64

	// Anchor is the instant of one tick. Zero means the creation of the queue.
	Anchor time.Time
}

// Validate returns an error that states the invalid field if t is invalid.
func (t TickQueueConfig) Validate() error {
	if t.Queue <= 0 {
		return fmt.Errorf("throttle: tick queue %q: Queue is %d: it must be positive: every claim waits for a tick", t.Limit.Name, t.Queue)
	}
	if err := cmp.Or(t.Limit.checkNoBurst("tick queue"), t.Limit.Validate()); err != nil {
		return err
	}
	if t.Limit.Count > int64(t.Limit.Per) { // the numbers of ticks would not fit in an int64
		return fmt.Errorf("throttle: tick queue %q: Count is %d and Per is %v: there must be at most one tick per nanosecond", t.Limit.Name, t.Limit.Count, t.Limit.Per)
	}
	return nil
}

type tickQueue struct {
	base
	config     TickQueueConfig
	lastBooked int64 // number of the latest booked tick, counted from the anchor
}

// NewTickQueue returns a queue from which one unit is served at each tick. Unused ticks are lost.
// Every claim waits for a tick, so that work starts only at known instants.
//
//	ticks  ┼───────┼───────┼───────┼───────┼──▶ time
//	         ↑↑            A ↑     B       C
//	       A, B claim:     tick    C claims, and is served at the next free tick
//	       served here and here
//
// Ticks are at anchor + k*Per/Count, and do not drift even if Per/Count is not a whole number
// of nanoseconds. A claim at the instant of a tick is served at a later one.
//
// ReserveAhead grants a claim immediately, with the time until its tick as Decision.Wait.
// Reserve rejects a claim, unless Claim.Waits is set, as a queue.Queue does: then it grants
// the claim at its tick.
//
// Invariant: no two units share a tick, and no more than Queue units wait. A claim is used
// at the tick of its last unit.
//
// Limitations: claims behind an Unused one keep their ticks, so only the last claim in the
// queue returns ticks, also those of a lower actual cost, and only before the last has passed.
//
// It panics if t is invalid.
func NewTickQueue(t TickQueueConfig) Limiter {
	must(t.Validate(), "NewTickQueue")
	return &tickQueue{base: newBase(ticks.NewTimeline(), policyOf(t.Limit.Name, t.Limit)), config: t, lastBooked: ticks.Never}
}

func (q *tickQueue) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n, now, err := q.begin(&c, &d)
	if err != nil {
		return d, err
	}
	defer q.mu.Unlock()
	d.Limit = q.config.Queue
	d.Per = time.Duration(ticks.MulDivCeil(d.Limit, int64(q.config.Limit.Per), q.config.Limit.Count)) // a full queue is served in it
	if c.Waits && c.Ahead <= 0 {
		return q.reserveWaiting(d, c, n, now), nil
	}
	tick := q.tickAt(now)
	from := max(q.lastBooked, tick)
	to := ticks.Add(from, n)
	earliestByWait := ticks.Sub(q.tickTime(to), max(int64(c.Ahead), 0)) // when the wait is at most Ahead
	earliestByQueue := q.tickTime(ticks.Sub(to, q.config.Queue))        // when the queue has enough free ticks
	switch wait := ticks.Sub(max(earliestByWait, earliestByQueue), now); {
	case n > q.config.Queue, earliestByWait >= q.tickTime(ticks.Add(from, 1)): // not even in an empty queue
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
	d.boundQueue(&c, q.config.Queue)
	d.setFresh(&c)
	return d, nil
}

// reserveWaiting completes d for a claim of n units with Waits, which is granted at its last
// tick. It uses the ticks after all booked ones and after the start of the wait.
func (q *tickQueue) reserveWaiting(d Decision, c Claim, n, now int64) Decision {
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
	d.boundQueue(&c, q.config.Queue)
	return d
}

// Report implements Limiter: it corrects the cost of the claim. If it was more than claimed, the
// claim takes the ticks after all booked ones.
func (q *tickQueue) Report(_ context.Context, c Claim, d Decision, f Feedback) {
	q.correct(c, d, f, func(extra, now int64) {
		switch {
		case extra > 0:
			q.lastBooked = ticks.Add(max(q.lastBooked, q.tickAt(now)), extra)
		case int64(d.Grant) == q.lastBooked && d.Wait > 0: // with no Wait, its tick has passed
			q.lastBooked = ticks.Add(q.lastBooked, extra)
		}
	})
}

func (*tickQueue) Traits() Traits { return bookingTraits(true) }

func (q *tickQueue) tickAt(now int64) int64 {
	since := ticks.Sub(now, q.readAnchor(q.config.Anchor))
	return ticks.MulDivDown(since, q.config.Limit.Count, int64(q.config.Limit.Per))
}

// tickTime returns the instant of tick, rounded up.
func (q *tickQueue) tickTime(tick int64) int64 {
	since := ticks.MulDivCeil(tick, int64(q.config.Limit.Per), q.config.Limit.Count)
	return ticks.Add(q.readAnchor(q.config.Anchor), since)
}
