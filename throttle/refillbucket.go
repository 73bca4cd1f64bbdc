package throttle

import (
	"context"
	"fmt"
	"time"

	"github.com/heed-go/heed/internal/ticks"
)

// A RefillBucketConfig configures NewRefillBucket. Count units are added every Per, up to Burst.
type RefillBucketConfig struct {
	Limit Limit

	// InitialDeficit is the number of units missing at the start. Zero means none.
	InitialDeficit int64

	// Anchor is the instant of one tick. Zero means the creation of the bucket.
	Anchor time.Time
}

// Validate returns an error that states the invalid field if r is invalid.
func (r RefillBucketConfig) Validate() error {
	if r.InitialDeficit < 0 || r.InitialDeficit > r.Limit.burst() {
		return fmt.Errorf("throttle: refill bucket %q: InitialDeficit is %d: it must lie between 0 and the burst", r.Limit.Name, r.InitialDeficit)
	}
	return r.Limit.Validate()
}

type refillBucket struct {
	base
	config RefillBucketConfig // its Limit is the one in force
	anchor int64              // Config.Anchor as a reading
	state  refillState
}

// A refillState is the state of a refillBucket right after a tick.
type refillState struct {
	tick     int64 // its number, counted from the anchor
	taken    int64 // units missing from burst; more than burst: in debt
	refilled int64 // units added by all ticks, including those above the burst
}

// NewRefillBucket returns a token bucket that is refilled in steps, for limits that are defined in
// this way: 5 more every minute, or all 200 again at noon.
//
//	units
//	  5 ┤▁▁          ▁▁▁▁▁▁▁▁▁
//	  3 ┤  ▔▔▁      ▏         ▔▔▁▁         + 2 at each tick,
//	  1 ┤    ▔▔▔▔▔▔▔▏             ▔▔▔▔     never above the burst
//	    ┼───────┬───────┬───────┬───────▶ time
//	          tick    tick    tick
//
// Ticks are at anchor + k*Per and do not drift. One at the instant of a claim counts for it.
//
// Invariant: within any span W no more than burst + Count*(ticks in W) units are granted and
// kept. An Unused claim returns its units less those that ticks have added since the grant.
//
// SetLimit keeps the anchor, and the units in the bucket up to the new burst.
//
// It panics if r is invalid.
func NewRefillBucket(r RefillBucketConfig) Adjustable {
	must(r.Validate(), "NewRefillBucket")
	b := &refillBucket{base: newBase(ticks.NewTimeline(), policyOf(r.Limit.Name, r.Limit)), config: r}
	b.start()
	return b
}

// RefillsInSteps says that Decision.Per is more than the time of so many units if a step is no
// part of the burst. Package queue looks for this method.
func (*refillBucket) RefillsInSteps() {}

// SetClock replaces the clock; see WithClock.
func (b *refillBucket) SetClock(c Clock) {
	b.base.SetClock(c)
	b.start()
}

func (b *refillBucket) start() {
	b.anchor = b.readAnchor(b.config.Anchor)
	b.state = refillState{tick: b.tickAt(0), taken: b.config.InitialDeficit}
}

func (b *refillBucket) Reserve(_ context.Context, c Claim) (d Decision, err error) {
	n, now, err := b.begin(&c, &d)
	if err != nil {
		return d, err
	}
	defer b.mu.Unlock()
	s, l := b.stateAt(now), &b.config.Limit
	burst := l.burst()
	d.Limit, d.Per = burst, time.Duration(ticks.Mul((burst-1)/l.Count+1, int64(l.Per)))
	switch short := ticks.Sub(n, burst-s.taken); {
	case n > burst:
		d.Wait = Forever
	case short > 0:
		d.Wait = b.waitFor(short, s.tick, now)
	default:
		d.OK, d.Grant = true, uint64(s.refilled)
		if !c.DryRun {
			s.taken += n
			b.state, b.last = s, now
		}
	}
	d.Remaining = max(burst-s.taken, 0)
	d.ResetAfter = b.waitFor(s.taken, s.tick, now)
	d.setFresh(&c)
	return d, nil
}

// Report implements Limiter: it corrects the cost of the claim. If it was more than claimed, the
// difference is taken, if necessary from future ticks.
func (b *refillBucket) Report(_ context.Context, c Claim, d Decision, f Feedback) {
	b.correct(c, d, f, func(extra, now int64) {
		s := b.stateAt(now)
		switch since := s.refilled - int64(d.Grant); {
		case extra > 0:
			s.taken = ticks.Add(s.taken, extra)
			b.state = s
		case s.refilled < maxRefilled && since < -extra: // above maxRefilled the count may be inexact
			b.state.taken = max(b.state.taken+extra+since, 0)
		}
	})
}

func (b *refillBucket) SetLimit(l Limit) error {
	if err := l.Validate(); err != nil {
		return err
	}
	given := b.time.Read(time.Time{})
	b.mu.Lock()
	defer b.mu.Unlock()
	now := max(given, b.last)
	s := b.stateAt(now)
	free := min(b.config.Limit.burst()-s.taken, l.burst())
	b.config.Limit, b.policy = l, policyOf(l.Name, l)
	b.state = refillState{b.tickAt(now), ticks.Sub(l.burst(), free), s.refilled}
	return nil
}

// maxRefilled is the largest count of refilled units that is exact.
const maxRefilled = 1 << 62

func (b *refillBucket) stateAt(now int64) refillState {
	s, tick := b.state, b.tickAt(now)
	if b.last == ticks.Never { // the first claim may have a time before the creation
		s.tick = min(s.tick, tick)
	}
	if tick > s.tick {
		flow := ticks.Mul(ticks.Sub(tick, s.tick), b.config.Limit.Count)
		s = refillState{tick, max(s.taken-flow, 0), ticks.Add(s.refilled, flow)}
	}
	return s
}

func (b *refillBucket) tickAt(now int64) int64 {
	return ticks.FloorDiv(ticks.Sub(now, b.anchor), int64(b.config.Limit.Per))
}

// waitFor returns how long after now the ticks following tick have added n units.
func (b *refillBucket) waitFor(n, tick, now int64) time.Duration {
	if n <= 0 {
		return 0
	}
	tick = ticks.Add(tick, (n-1)/b.config.Limit.Count+1)
	return time.Duration(ticks.Sub(ticks.Add(b.anchor, ticks.Mul(tick, int64(b.config.Limit.Per))), now))
}
