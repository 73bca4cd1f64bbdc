package warmup

import (
	"context"
	"math"
	"sync"
	"time"

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
	clock throttle.Clock // nil: the system clock
	start time.Time      // all times are nanoseconds since then

	mu     sync.Mutex
	shape  func(throttle.Limit) (prices, error)
	policy string
	prices prices
	units  float64       // whole idle units that can be had at once, besides one
	full   time.Duration // in which they come
	state  state
	last   int64 // the latest reading granted at; math.MinInt64: none

	outage  time.Duration // 0: never
	failing int64         // since when nothing was accepted; math.MaxInt64: something was
}

// A state is what changes with each claim.
type state struct {
	next    int64   // when all that was granted is paid for; math.MaxInt64: never
	rounded float64 // nanoseconds by which next was rounded up
	idle    float64 // idle units as of next
}

// New returns a limiter that is cold. A nil clk is the system clock. It panics if c is
// invalid; call c.Validate first if its numbers come from outside.
func New(c Curve, clk throttle.Clock) *Limiter {
	shape := func(l throttle.Limit) (prices, error) {
		c := c
		c.Limit = l
		return c.prices(), c.Validate()
	}
	l := newLimiter(shape, c.Limit, clk, "New")
	l.state.idle, l.outage = l.prices.most, c.Outage
	return l
}

// NewBursty returns a limiter that saves up idle time from now on. A nil clk is the
// system clock. It panics if b is invalid.
func NewBursty(b Burst, clk throttle.Clock) *Limiter {
	shape := func(l throttle.Limit) (prices, error) {
		b := b
		b.Limit = l
		return b.prices(), b.Validate()
	}
	l := newLimiter(shape, b.Limit, clk, "NewBursty")
	if b.Full {
		l.state.idle = l.prices.most
	}
	return l
}

func newLimiter(shape func(throttle.Limit) (prices, error), limit throttle.Limit, clk throttle.Clock, name string) *Limiter {
	l := &Limiter{clock: clk, start: throttle.ClockOr(clk).Now(), shape: shape, last: math.MinInt64, failing: math.MaxInt64}
	p, err := shape(limit)
	if err != nil {
		panic(err.Error() + " (" + name + ")")
	}
	l.adopt(limit, p)
	return l
}

// adopt makes p the prices of l.
func (l *Limiter) adopt(limit throttle.Limit, p prices) {
	if l.policy = limit.Name; l.policy == "" {
		l.policy = limit.String()
	}
	l.prices, l.units, l.full = p, 0, 0
	if p.free() {
		l.units = math.Floor(p.most)
		l.full = nanoseconds(l.units * p.interval)
	}
}

// Reserve implements throttle.Limiter. Decision.Limit is the units that can be had at
// once, one by one, after a long idleness. A larger claim is granted as well.
func (l *Limiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	given := l.read(c.Now)
	l.mu.Lock()
	defer l.mu.Unlock()
	now, s := max(given, l.last), l.state
	if l.last == math.MinInt64 {
		s.next = min(s.next, now) // the first reading may be older than the limiter
	}
	d := throttle.Decision{Policy: l.policy, At: l.stamp(now, given, c.Now)}
	wait, longest := time.Duration(max(subSat(s.next, now), 0)), max(c.MaxWait, 0)
	switch {
	case s.next == math.MaxInt64:
		d.Wait = throttle.Forever
	case wait > longest:
		d.Wait = wait - longest
	default:
		d.OK, d.Wait = true, wait
		if !c.DryRun {
			used := s.take(&l.prices, float64(n), now)
			l.state, l.last, d.Grant = s, now, math.Float64bits(used)
		}
	}
	return l.describe(d, s, now), nil
}

// describe adds to d what can be had in state s.
func (l *Limiter) describe(d throttle.Decision, s state, now int64) throttle.Decision {
	d.Limit = whole(l.units)
	if d.Limit < math.MaxInt64 {
		d.Limit++
	}
	d.Per = nanoseconds((l.units + 1) * l.prices.interval)
	if s.next > now {
		d.ResetAfter = time.Duration(addSat(subSat(s.next, now), int64(l.full))) // see end
		return d
	}
	s.elapse(&l.prices, now)
	idle := min(s.idle, l.units)
	d.Remaining = min(whole(math.Floor(idle)), d.Limit-1) + 1
	d.ResetAfter = nanoseconds((l.units - idle) * l.prices.interval)
	return d
}

// Local implements throttle.Local.
func (*Limiter) Local() bool { return true }

// Cancel implements throttle.Limiter.
func (l *Limiter) Cancel(_ context.Context, c throttle.Claim, d throttle.Decision) {
	if n, err := c.Units(); err == nil && d.OK {
		l.giveBack(n, n, c.Now, d)
	}
}

// Observe implements throttle.Observer: it settles a cost that was known only
// afterwards, and notices an outage, see Curve.Outage. What the claim cost less comes
// back as in Cancel; what it cost more is paid for by those who come next.
func (l *Limiter) Observe(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	n, err := c.Units()
	if err != nil || !d.OK {
		return
	}
	if l.outage > 0 {
		l.notice(f)
	}
	switch {
	case f.More || f.Cost <= 0 || f.Cost == n:
	case f.Cost < n:
		l.giveBack(n-f.Cost, n, f.Now, d)
	default:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.state.take(&l.prices, float64(f.Cost-n), max(l.read(f.Now), l.last))
	}
}

// notice makes the limit cold if nothing was accepted for long enough.
func (l *Limiter) notice(f throttle.Feedback) {
	now := l.read(f.Now)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case f.Outcome == throttle.Accepted:
		l.failing = math.MaxInt64
	case l.failing == math.MaxInt64:
		l.failing = now
	case subSat(now, l.failing) >= int64(l.outage):
		l.state.idle = l.prices.most
	}
}

// SetLimit replaces Count, Per and Name of the limit. What was granted stays paid for at
// the former rate; the limit stays as cold as it was, or the same idle time saved. The
// error says what is wrong with limit, and then nothing has changed.
func (l *Limiter) SetLimit(limit throttle.Limit) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, err := l.shape(limit)
	if err != nil {
		return err
	}
	now := max(l.read(time.Time{}), l.last)
	l.state.elapse(&l.prices, now)
	if l.prices.most > 0 {
		l.state.idle = min(l.state.idle/l.prices.most*p.most, p.most)
	}
	l.last = now
	l.adopt(limit, p)
	return nil
}

// giveBack gives back m of the n units of the claim that d granted: those that it would
// have used last.
func (l *Limiter) giveBack(m, n int64, asOf time.Time, d throttle.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.read(d.At)
	now, place := max(l.read(asOf), l.last, at), addSat(at, int64(d.Wait))
	used := math.Float64frombits(d.Grant)
	end := max(l.end(at, d), place)
	if s := &l.state; end > place && s.next == end {
		kept := float64(n - m)
		cost := l.prices.total(s.idle+used, kept, min(kept, used))
		paid := addSat(place, whole(math.Ceil(cost)))
		s.next, s.rounded = min(max(paid, now), end), 0
	}
	fresh := float64(n) - used
	idle := min(max(float64(m)-fresh, 0), used) - float64(max(subSat(now, end), 0))/l.prices.cooling
	l.state.idle = min(l.state.idle+max(idle, 0), l.prices.most)
}

// end returns when the claim that d granted at the given time will be paid for, which
// ResetAfter tells: next was in the future then, or there is nothing to pay.
func (l *Limiter) end(at int64, d throttle.Decision) int64 {
	return subSat(addSat(at, int64(d.ResetAfter)), int64(l.full))
}
