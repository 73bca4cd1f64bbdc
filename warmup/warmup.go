package warmup

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A limiter is a rate limit that a Config or a BurstyConfig describes: see the comment of the package.
type limiter struct {
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

// A state is the part of a limiter that changes with each claim.
type state struct {
	next      int64   // when all granted claims are paid for; math.MaxInt64 means never
	roundedUp float64 // nanoseconds by which next was rounded up
	idle      float64 // number of idle units at next
}

// New returns a limiter that is cold. New panics if c is invalid; call c.Validate first
// if c depends on input.
func New(c Config) throttle.Adjustable {
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
func NewBursty(b BurstyConfig) throttle.Adjustable {
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

func newLimiter(costsOf func(throttle.Limit) (costs, error), limit throttle.Limit, name string) *limiter {
	l := &limiter{time: ticks.NewTimeline(), costsOf: costsOf, last: ticks.Never, failingSince: math.MaxInt64}
	p, err := costsOf(limit)
	if err != nil {
		panic(err.Error() + " (" + name + ")")
	}
	l.setCosts(limit, p)
	return l
}

// setCosts sets the costs of l and the name of its limit.
func (l *limiter) setCosts(limit throttle.Limit, p costs) {
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
func (l *limiter) SetClock(c throttle.Clock) { l.time.SetClock(c) }

// Reserve implements throttle.Limiter. Decision.Limit is the number of units that can be used
// immediately, one by one, after a long idle time. A larger claim is granted as well.
func (l *limiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
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
func (l *limiter) describe(d throttle.Decision, s state, now int64) throttle.Decision {
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
func (l *limiter) Report(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
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
func (*limiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true, BooksAhead: true}
}

// recordOutcome makes the limit cold if no work has been accepted for the time of Outage.
func (l *limiter) recordOutcome(f throttle.Feedback) {
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

// SetLimit implements throttle.Adjustable.
func (l *limiter) SetLimit(limit throttle.Limit) error {
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
func (l *limiter) refund(m, n int64, asOf time.Time, d throttle.Decision) {
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
func (l *limiter) paidAt(at int64, d throttle.Decision) int64 {
	return ticks.Sub(ticks.Add(at, int64(d.ResetAfter)), int64(l.refillTime))
}
