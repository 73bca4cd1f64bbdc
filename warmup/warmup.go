package warmup

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// Limiter is a limit that pays later, by the prices of a Curve or a Burst.
//
//	    A: 4 units, Wait 0        B: 1 unit, booked ahead
//	    │                         │
//	────┼─────┬─────┬─────┬───────┼─────┼──▶ time
//	    │<---- A's units take --->│ B's │
//	   now                             next
//
// It keeps two numbers: next, the instant at which all that was granted is paid for,
// and idle, how many idle units there were then. A claim acts at next, or at once if
// that is over, and moves next by what its units take. Until next nothing else is
// granted, unless Claim.MaxWait allows to book a place there.
//
// Invariant: within any span W no more than the largest claim and rate*W units act and
// are kept, and with a Burst those that were saved. What a claim costs is rounded up to
// whole nanoseconds, and what it was rounded by is taken off the next one: two acts may
// be one nanosecond closer than they should, and the rate is right for ever.
//
// The odd case is Cancel. A claim whose place is followed by others has been paid for by
// the time they act: they keep their places, and what would let a new claim in between
// is not given back. If it is the last, the instant at which it ends is next, and can go
// back to its place. Idle units that it used are idle again, less those that time has
// made since; on a Curve that makes the limit colder, so that claims which never act do
// not warm it up.
type Limiter struct {
	time ticks.Timeline

	mu         sync.Mutex
	costsOf    func(throttle.Limit) (costs, error)
	policy     string
	costs      costs
	maxAtOnce  float64       // whole idle units that can be had at once, besides one
	refillTime time.Duration // in which they come
	state      state
	last       int64 // the latest reading granted at; ticks.Never: none

	outage       time.Duration // 0: never
	failingSince int64         // since when nothing was accepted; math.MaxInt64: something was
}

// A state is what changes with each claim.
type state struct {
	next      int64   // when all that was granted is paid for; math.MaxInt64: never
	roundedUp float64 // nanoseconds by which next was rounded up
	idle      float64 // idle units as of next
}

// New returns a limiter that is cold. A nil clk is the system clock. It panics if c is
// invalid; call c.Validate first if its numbers come from outside.
func New(c Config, clk throttle.Clock) *Limiter {
	costsOf := func(l throttle.Limit) (costs, error) {
		c := c
		c.Limit = l
		return c.costs(), c.Validate()
	}
	l := newLimiter(costsOf, c.Limit, clk, "New")
	l.state.idle, l.outage = l.costs.maxIdle, c.Outage
	return l
}

// NewBursty returns a limiter that saves up idle time from now on. A nil clk is the
// system clock. It panics if b is invalid.
func NewBursty(b BurstyConfig, clk throttle.Clock) *Limiter {
	costsOf := func(l throttle.Limit) (costs, error) {
		b := b
		b.Limit = l
		return b.costs(), b.Validate()
	}
	l := newLimiter(costsOf, b.Limit, clk, "NewBursty")
	if b.StartFull {
		l.state.idle = l.costs.maxIdle
	}
	return l
}

func newLimiter(costsOf func(throttle.Limit) (costs, error), limit throttle.Limit, clk throttle.Clock, name string) *Limiter {
	l := &Limiter{time: ticks.NewTimeline(clk), costsOf: costsOf, last: ticks.Never, failingSince: math.MaxInt64}
	p, err := costsOf(limit)
	if err != nil {
		panic(err.Error() + " (" + name + ")")
	}
	l.setCosts(limit, p)
	return l
}

// setCosts makes p the prices of l.
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

// Reserve implements throttle.Limiter. Decision.Limit is the units that can be had at
// once, one by one, after a long idleness. A larger claim is granted as well.
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
	wait, longest := time.Duration(max(ticks.Sub(s.next, now), 0)), max(c.MaxWait, 0)
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
	return l.describe(d, s, now), nil
}

// describe adds to d what can be had in state s.
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

// Local implements throttle.NonBlocking.
func (*Limiter) NonBlocking() bool { return true }

// Cancel implements throttle.Limiter.
func (l *Limiter) Cancel(_ context.Context, c throttle.Claim, d throttle.Decision) {
	if n, err := c.Units(); err == nil && d.OK {
		l.refund(n, n, c.Now, d)
	}
}

// Observe implements throttle.Observer: it settles a cost that was known only
// afterwards, and notices an outage, see Config.Outage. What the claim cost less comes
// back as in Cancel; what it cost more is paid for by those who come next.
func (l *Limiter) Observe(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	n, err := c.Units()
	if err != nil || !d.OK {
		return
	}
	if l.outage > 0 {
		l.recordOutcome(f)
	}
	switch {
	case f.Partial || f.Cost <= 0 || f.Cost == n:
	case f.Cost < n:
		l.refund(n-f.Cost, n, f.Now, d)
	default:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.state.take(&l.costs, float64(f.Cost-n), max(l.time.Read(f.Now), l.last))
	}
}

// recordOutcome makes the limit cold if nothing was accepted for long enough.
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

// SetLimit replaces Count, Per and Name of the limit. What was granted stays paid for at
// the former rate; the limit stays as cold as it was, or the same idle time saved. The
// error says what is wrong with limit, and then nothing has changed.
func (l *Limiter) SetLimit(limit throttle.Limit) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := l.costsOf(limit)
	if err != nil {
		return err
	}
	now := max(l.time.Read(time.Time{}), l.last)
	l.state.advance(&l.costs, now)
	if l.costs.maxIdle > 0 {
		l.state.idle = min(l.state.idle/l.costs.maxIdle*p.maxIdle, p.maxIdle)
	}
	l.last = now
	l.setCosts(limit, p)
	return nil
}

// refund gives back m of the n units of the claim that d granted: those that it would
// have used last.
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

// paidAt returns when the claim that d granted at the given time will be paid for, which
// ResetAfter tells: next was in the future then, or there is nothing to pay.
func (l *Limiter) paidAt(at int64, d throttle.Decision) int64 {
	return ticks.Sub(ticks.Add(at, int64(d.ResetAfter)), int64(l.refillTime))
}
