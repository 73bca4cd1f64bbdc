package rate

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// A bucket is the throttle.Limiter of NewLimiter: a bucket of throttle.NewLeakyBucket in which any number
// of units may wait, with what only x/time/rate has: an infinite limit, a limit of 0, and a
// burst of 0.
//
// Under an infinite limit, claims do not reach units, which restores 16 units per nanosecond.
// Under a limit of 0, the time of units stands still. Under a burst of 0, units has a burst
// of 1, which is not used and drained when the burst is raised.
//
// Limitations: the positions of units booked before a limit of 0 count as later by the time
// for which it was 0, so an Unused later reservation may return fewer units than possible.
type bucket struct {
	units leakyBucket // never another one
	plain atomic.Bool // units alone decide

	mu    sync.Mutex // guards the fields below
	limit Limit
	burst int
	name  string // throttle.Decision.Policy

	isStopped bool          // the limit is 0
	stoppedAt time.Time     // when the limit became 0; zero: a new bucket that has not seen a time yet
	delay     time.Duration // how long the limit was 0 before; the time of units is late by it
}

// A leakyBucket is the limiter of throttle.NewLeakyBucket, with what only package rate needs.
type leakyBucket interface {
	throttle.Adjustable
	changeable
	Available(now time.Time) float64
	Drain(now time.Time)
	Take(now time.Time, n int64) bool
}

func newBucket(limit Limit, burst int) *bucket {
	b := &bucket{limit: limit, burst: burst}
	l := b.unitsLimit()
	b.name = l.Name
	b.units = throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: l, Queue: math.MaxInt64}).(leakyBucket)
	b.isStopped = !limit.restores()
	b.setPlain()
	return b
}

// setPlain sets b.plain.
func (b *bucket) setPlain() {
	if !b.isStopped && b.delay == 0 && b.limit < Inf && b.burst > 0 {
		b.plain.Store(true)
	}
}

// unitsLimit returns the limit of units. Its name differs for all limits and bursts, so that
// an Unused claim across a change returns nothing: see throttle.NewLeakyBucket.
func (b *bucket) unitsLimit() throttle.Limit {
	l := b.limit.withBurst(int64(b.burst))
	if !b.limit.restores() {
		l.Per = min(l.Per, time.Hour) // any period does, as time stands still; this one can express large debts
	}
	l.Name = fmt.Sprintf("%v per second, burst %d", float64(b.limit), b.burst)
	return l
}

// set changes the limit and the burst as of now. change returns the new ones.
func (b *bucket) set(now time.Time, change func(Limit, int) (Limit, int)) {
	now = orNow(now)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.plain.Store(false)
	defer b.setPlain()
	at := b.timeOfUnits(now)
	if b.burst <= 0 {
		b.units.Drain(at)
	}
	b.limit, b.burst = change(b.limit, b.burst)
	l := b.unitsLimit()
	b.name = l.Name
	if err := b.units.SetLimitAt(at, l); err != nil {
		panic(err) // withBurst returns valid limits
	}
	switch stop := !b.limit.restores(); {
	case b.isStopped && !stop:
		b.delay += max(now.Sub(b.stoppedAt), 0)
	case stop && !b.isStopped:
		b.stoppedAt = now
	}
	b.isStopped = !b.limit.restores()
}

// timeOfUnits returns the time of units at now. A zero now stays zero if units may read the
// clock itself. The caller must hold b.mu.
func (b *bucket) timeOfUnits(now time.Time) time.Time {
	if b.isStopped {
		if b.stoppedAt.IsZero() {
			b.stoppedAt = orNow(now)
		}
		return b.stoppedAt.Add(-b.delay)
	}
	if b.delay == 0 {
		return now
	}
	return orNow(now).Add(-b.delay)
}

// Reserve implements throttle.Limiter.
func (b *bucket) Reserve(ctx context.Context, c throttle.Claim) (d throttle.Decision, err error) {
	if b.plain.Load() {
		return b.units.Reserve(ctx, c)
	}
	if _, err := c.Units(); err != nil {
		return d, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit >= Inf || b.burst <= 0 {
		d = throttle.Decision{OK: b.limit >= Inf, Policy: b.name, At: orNow(c.Now)}
		if !d.OK {
			d.Wait = throttle.Forever
		}
		return d, nil
	}
	if !b.isStopped && b.delay == 0 {
		return b.units.Reserve(ctx, c)
	}
	now := orNow(c.Now)
	c.Now = b.timeOfUnits(now)
	if !b.isStopped {
		d, err = b.units.Reserve(ctx, c)
		d.At = d.At.Add(b.delay)
		return d, err
	}
	c.Ahead = 0
	d, err = b.units.Reserve(ctx, c)
	d.At, d.Fresh, d.ResetAfter, d.Per = now, false, throttle.Forever, 0
	if !d.OK {
		d.Wait, d.Limit = throttle.Forever, min(d.Limit, d.Remaining)
	}
	return d, err
}

// take takes n units if they may be used as of now.
func (b *bucket) take(now time.Time, n int) bool {
	if b.plain.Load() {
		return b.units.Take(now, int64(n))
	}
	d, err := b.Reserve(context.Background(), throttle.Claim{Cost: int64(n), Now: now})
	return err == nil && d.OK
}

// Report implements throttle.Limiter. It ignores the actual cost.
func (b *bucket) Report(ctx context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	if f.State != throttle.Unused {
		return
	}
	if b.plain.Load() {
		b.units.Report(ctx, c, d, f)
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f.Now = b.timeOfUnits(f.Now)
	if d.At = d.At.Add(-b.delay); b.isStopped {
		d.At = f.Now
	}
	b.units.Report(ctx, c, d, f)
}

// Traits implements throttle.Limiter.
func (*bucket) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true, BooksAhead: true}
}

// policy returns the name of the limit.
func (b *bucket) policy() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.name
}

// values returns the limit and the burst.
func (b *bucket) values() (Limit, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit, b.burst
}

// tokens returns the number of units at now. It is negative while units are booked that are
// not restored yet.
func (b *bucket) tokens(now time.Time) float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lockedTokens(now)
}

func (b *bucket) lockedTokens(now time.Time) float64 {
	n := b.units.Available(b.timeOfUnits(now))
	if b.burst <= 0 {
		n = min(n, 0)
	}
	return n
}

// debt returns how long it takes from now until all booked units are restored. It is the
// delay of a claim of no units.
func (b *bucket) debt(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.limit >= Inf {
		return 0
	}
	switch n := b.lockedTokens(now); {
	case n >= 0:
		return 0
	case b.isStopped:
		return throttle.Forever
	default:
		return ticks.CeilDuration(-n / float64(b.limit) * 1e9)
	}
}

// orNow returns now, or the current time if now is zero.
func orNow(now time.Time) time.Time {
	if now.IsZero() {
		return time.Now()
	}
	return now
}

// A noUnits is the limit of a Wait for no units: it ends when the bucket has no debt.
type noUnits struct{ b *bucket }

// Reserve implements throttle.Limiter.
func (z noUnits) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	d := throttle.Decision{Policy: z.b.policy(), At: orNow(c.Now)}
	d.Wait = z.b.debt(d.At)
	d.OK = d.Wait == 0
	return d, nil
}

// Report implements throttle.Limiter.
func (noUnits) Report(context.Context, throttle.Claim, throttle.Decision, throttle.Feedback) {}

// Traits implements throttle.Limiter.
func (noUnits) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}
