package warmup

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A Limiter is a rate limit that a Config or a BurstyConfig describes. The time that the units
// of a claim take delays the next claim:
//
//	    A: 4 units, Wait 0        B: 1 unit, booked ahead
//	    │                         │
//	────┼─────┬─────┬─────┬───────┼─────┼──▶ time
//	    │<---- A's units take --->│ B's │
//	   now                             next
//
// A Limiter stores two numbers: next, the instant at which the time of all granted claims has
// passed, and idle, the number of idle units at that instant. A claim may be used at next, or
// immediately if next has passed, and moves next by the time that its units take. Until next
// no other claim is granted; ReserveAhead books that instant.
//
// Invariant: within any span W, at most the units of the largest claim plus rate*W units are
// used and kept, and with a BurstyConfig also the units that were saved. The time of a claim
// is rounded up to whole nanoseconds, and the rounding is subtracted from the time of the next
// claim: two claims may be used one nanosecond too close together, but the rate does not
// drift.
//
// Limitations: an Unused claim does not return time if later claims are booked after the canceled one:
// they keep their instants, and returning the time would let a new claim start between them.
// If the canceled claim is the last one, next moves back to the instant at which that claim
// could have been used, but not before now. Idle units that the claim used become idle again,
// less those that have been added since. With a Config this makes the limit colder, so that
// claims that are canceled do not warm it up.
type Limiter struct {
	time ticks.Timeline

	mu         sync.Mutex
	costsOf    func(throttle.Limit) (costs, error)
	policy     string
	costs      costs
	maxAtOnce  float64       // maximum number of whole idle units that can be used immediately, besides one other unit
	refillTime time.Duration // time in which maxAtOnce units become available
	state      state
	last       int64 // the latest reading granted at; ticks.Never: none

	outage       time.Duration // 0 means never
	failingSince int64         // time of the first failure since the last accepted feedback; math.MaxInt64 means none
}

// A state is the part of a Limiter that changes with each claim.
type state struct {
	next      int64   // when all granted claims are paid for; math.MaxInt64 means never
	roundedUp float64 // nanoseconds by which next was rounded up
	idle      float64 // number of idle units at next
}

// New returns a limiter that is cold. New panics if c is invalid; call c.Validate first
// if c depends on input.
func New(c Config) *Limiter {
	costsOf := func(l throttle.Limit) (costs, error) {
		c := c
		c.Limit = l
		return c.costs(), c.Validate()
	}
	l := newLimiter(costsOf, c.Limit, "New")
	l.state.idle, l.outage = l.costs.maxIdle, c.Outage
	return l
}

// NewBursty returns a limiter that saves idle time from now on. NewBursty panics if b
// is invalid; call b.Validate first if b depends on input.
func NewBursty(b BurstyConfig) *Limiter {
	costsOf := func(l throttle.Limit) (costs, error) {
		b := b
		b.Limit = l
		return b.costs(), b.Validate()
	}
	l := newLimiter(costsOf, b.Limit, "NewBursty")
	if b.StartFull {
		l.state.idle = l.costs.maxIdle
	}
	return l
}

func newLimiter(costsOf func(throttle.Limit) (costs, error), limit throttle.Limit, name string) *Limiter {
	l := &Limiter{time: ticks.NewTimeline(), costsOf: costsOf, last: ticks.Never, failingSince: math.MaxInt64}
	p, err := costsOf(limit)
	if err != nil {
		panic(err.Error() + " (" + name + ")")
	}
	l.setCosts(limit, p)
	return l
}

// setCosts sets the costs of l and the name of its limit.
func (l *Limiter) setCosts(limit throttle.Limit, p costs) {
	if l.policy = limit.Name; l.policy == "" {
		l.policy = limit.String()
	}
	l.costs, l.maxAtOnce, l.refillTime = p, 0, 0
	if p.idleUnitsAreFree() {
		l.maxAtOnce = math.Floor(p.maxIdle)
		l.refillTime = ticks.CeilDuration(l.maxAtOnce * p.stableInterval)
	}
}

// SetClock replaces the clock; see throttle.WithClock.
func (l *Limiter) SetClock(c throttle.Clock) { l.time.SetClock(c) }

// Reserve implements throttle.Limiter. Decision.Limit is the number of units that can be used
// immediately, one by one, after a long idle time. A larger claim is granted as well.
func (l *Limiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	given := l.time.Read(c.Now)
	l.mu.Lock()
	defer l.mu.Unlock()
	now, s := max(given, l.last), l.state
	if l.last == ticks.Never {
		s.next = min(s.next, now) // the first reading may be older than the limiter
	}
	d := throttle.Decision{Policy: l.policy, At: l.time.Stamp(now, given, c.Now)}
	wait, longest := time.Duration(max(ticks.Sub(s.next, now), 0)), max(c.Ahead, 0)
	switch {
	case s.next == math.MaxInt64:
		d.Wait = throttle.Forever
	case wait > longest:
		d.Wait = wait - longest
	default:
		d.OK, d.Wait = true, wait
		if !c.DryRun {
			used := s.take(&l.costs, float64(n), now)
			l.state, l.last, d.Grant = s, now, math.Float64bits(used)
		}
	}
	d = l.describe(d, s, now)
	d.Fresh = c.DryRun && d.Limit > 0 && d.Remaining == d.Limit && d.ResetAfter == 0
	return d, nil
}

// describe adds Limit, Remaining, ResetAfter and Per in state s to d.
func (l *Limiter) describe(d throttle.Decision, s state, now int64) throttle.Decision {
	d.Limit = ticks.Int64(l.maxAtOnce)
	if d.Limit < math.MaxInt64 {
		d.Limit++
	}
	d.Per = ticks.CeilDuration((l.maxAtOnce + 1) * l.costs.stableInterval)
	if s.next > now {
		d.ResetAfter = time.Duration(ticks.Add(ticks.Sub(s.next, now), int64(l.refillTime))) // see end
		return d
	}
	s.advance(&l.costs, now)
	idle := min(s.idle, l.maxAtOnce)
	d.Remaining = min(ticks.Int64(math.Floor(idle)), d.Limit-1) + 1
	d.ResetAfter = ticks.CeilDuration((l.maxAtOnce - idle) * l.costs.stableInterval)
	return d
}

// Report implements throttle.Limiter. It settles a cost that is known only after the work
// has ended, and detects outages: see Config.Outage. Units that were not used are returned as
// those of an Unused claim; units in excess of the claim delay later claims.
func (l *Limiter) Report(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	n, err := c.Units()
	if err != nil || !d.OK {
		return
	}
	if l.outage > 0 && f.State != throttle.Unused {
		l.recordOutcome(f)
	}
	switch {
	case f.State == throttle.Unused:
		l.refund(n, n, f.Now, d)
	case f.State == throttle.Ongoing || f.Cost <= 0 || f.Cost == n:
	case f.Cost < n:
		l.refund(n-f.Cost, n, f.Now, d)
	default:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.state.take(&l.costs, float64(f.Cost-n), max(l.time.Read(f.Now), l.last))
	}
}

// Traits implements throttle.Limiter.
func (*Limiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true, BooksAhead: true}
}

// recordOutcome makes the limit cold if no work has been accepted for the time of Outage.
func (l *Limiter) recordOutcome(f throttle.Feedback) {
	now := l.time.Read(f.Now)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case f.Outcome == throttle.Accepted:
		l.failingSince = math.MaxInt64
	case l.failingSince == math.MaxInt64:
		l.failingSince = now
	case ticks.Sub(now, l.failingSince) >= int64(l.outage):
		l.state.idle = l.costs.maxIdle
	}
}

// SetLimit replaces Count, Per and Name of the limit. Units that have been granted still take
// the time of the previous rate. The number of idle units, as a fraction of their maximum, is
// preserved. If limit is invalid, SetLimit returns an error and changes nothing.
func (l *Limiter) SetLimit(limit throttle.Limit) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := l.costsOf(limit)
	if err != nil {
		return err
	}
	// Idle time adds the same fraction of the maximum with each rate, so it need not end here.
	if l.costs.maxIdle > 0 {
		l.state.idle = min(l.state.idle/l.costs.maxIdle*p.maxIdle, p.maxIdle)
	}
	l.setCosts(limit, p)
	return nil
}

// refund returns m of the n units of the claim that d granted: those that the claim would have
// used last.
func (l *Limiter) refund(m, n int64, asOf time.Time, d throttle.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.time.Read(d.At)
	now, start := max(l.time.Read(asOf), l.last, at), ticks.Add(at, int64(d.Wait))
	used := math.Float64frombits(d.Grant)
	end := max(l.paidAt(at, d), start)
	if s := &l.state; end > start && s.next == end {
		kept := float64(n - m)
		cost := l.costs.total(s.idle+used, kept, min(kept, used))
		paid := ticks.Add(start, ticks.Int64(math.Ceil(cost)))
		s.next, s.roundedUp = min(max(paid, now), end), 0
	}
	notIdle := float64(n) - used
	idle := min(max(float64(m)-notIdle, 0), used) - float64(max(ticks.Sub(now, end), 0))/l.costs.coolDownInterval
	l.state.idle = min(l.state.idle+max(idle, 0), l.costs.maxIdle)
}

// paidAt returns when the claim that d granted at the given time will be paid for. It is
// derived from ResetAfter: next was in the future at that time, or there is nothing to pay.
func (l *Limiter) paidAt(at int64, d throttle.Decision) int64 {
	return ticks.Sub(ticks.Add(at, int64(d.ResetAfter)), int64(l.refillTime))
}
