// Package xtime makes a throttle.Limiter of a *rate.Limiter of golang.org/x/time/rate.
package xtime

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/heed-go/heed/internal/ticks"
	"github.com/heed-go/heed/throttle"
)

// New returns a Limiter that uses l, which a program already has. Both may be used side
// by side: they share their tokens. The name is shown as throttle.Decision.Policy; a nil clk
// is the system clock. It panics if l is nil.
//
// It decides for now, by AllowN, and does not book ahead. What l is, it stays:
//
//   - Tokens are a float64 and waits are cut to whole nanoseconds, so that l grants
//     what will be due within the next nanosecond. throttle.TokenBucket is exact.
//   - A limit of 0 never refills: claims wait throttle.Forever once the burst is used. A limit
//     of rate.Inf grants everything, and throttle.Decision.Limit is 0.
//   - SetLimit and SetBurst of l take effect at once, by the system clock. Wake the
//     queue.Queue after them.
//
// Two things are mended. A reading of the clock older than one granted at counts as
// that one, where l would credit the time between twice; this holds for claims made
// here, not for calls of l itself. And Cancel, which l only has for reservations that
// have not come due, gives back whole units that time has not given back yet. It
// gives back nothing while l is in debt to somebody who reserved ahead: l could then
// give the same units to them as well.
func New(l *rate.Limiter, name string, clk throttle.Clock) throttle.Limiter {
	if l == nil {
		panic("xtime: New: the limiter is nil: make one with rate.NewLimiter, or use throttle.AllowAll")
	}
	return &Limiter{l: l, name: name, clock: throttle.ClockOr(clk)}
}

type Limiter struct {
	l     *rate.Limiter
	name  string
	clock throttle.Clock

	mu   sync.Mutex
	last time.Time // latest reading granted or given back at: l must not see an older one
}

// Reserve implements Limiter.
func (r *Limiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	n, err := c.Units()
	if err != nil {
		return throttle.Decision{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.read(c.Now)
	if !c.DryRun && r.l.AllowN(now, asInt(n)) {
		r.last = now
		d := r.describe(now)
		d.OK, d.Grant = true, math.Float64bits(float64(r.l.Limit()))
		return d, nil
	}
	d := r.describe(now)
	if d.Wait = r.wait(n, now); d.Wait == 0 {
		if d.OK = c.DryRun; !d.OK { // somebody else's units came back just now
			d.Wait = 1
		}
	}
	return d, nil
}

// Local implements Local.
func (*Limiter) NonBlocking() bool { return true }

// Cancel implements Limiter. It relies on AllowN to add units when asked for a
// negative number.
func (r *Limiter) Cancel(_ context.Context, c throttle.Claim, d throttle.Decision) {
	n, err := c.Units()
	if err != nil || !d.OK {
		return
	}
	granted := math.Float64frombits(d.Grant)
	if granted == float64(rate.Inf) {
		return // took nothing
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.read(c.Now)
	if now.Before(d.At) {
		now = d.At
	}
	if r.l.TokensAt(now) < 0 {
		return // in debt
	}
	back := max(granted, float64(r.l.Limit())) * now.Sub(d.At).Seconds()
	if left := math.Floor(float64(n) - back); left > 0 && r.l.AllowN(now, -asInt(int64(left))) {
		r.last = now
	}
}

// read returns the reading that a claim counts as.
func (r *Limiter) read(now time.Time) time.Time {
	if now.IsZero() {
		now = r.clock.Now()
	}
	if now.Before(r.last) {
		return r.last
	}
	return now
}

// wait returns how long a claim of n units must wait; 0: it would be granted.
//
// The half nanosecond keeps waits short where they are whole: l grants what is due
// within one. The other term is what a float64 can be wrong by.
func (r *Limiter) wait(n int64, now time.Time) time.Duration {
	limit, burst := float64(r.l.Limit()), float64(r.l.Burst())
	missing := float64(n) - r.l.TokensAt(now)
	switch ns := missing / limit * 1e9; {
	case limit == float64(rate.Inf):
		return 0
	case n > int64(r.l.Burst()):
		return throttle.Forever
	case missing <= 0:
		return 0
	case ns < 1:
		return 0
	default:
		return ticks.CeilDuration(ns - 0.5 + burst/limit*1e9*0x1p-51)
	}
}

// describe returns the state of l as of now.
func (r *Limiter) describe(now time.Time) throttle.Decision {
	d := throttle.Decision{Policy: r.name, At: now}
	limit, tokens := float64(r.l.Limit()), r.l.TokensAt(now)
	if limit == float64(rate.Inf) {
		return d
	}
	d.Limit = int64(r.l.Burst())
	soon := math.Ceil(tokens+limit/1e9) - 1 // with those that l grants a nanosecond early
	d.Remaining = min(ticks.Int64(max(math.Floor(tokens), soon, 0)), d.Limit)
	if missing := float64(d.Limit) - tokens; missing > 0 {
		d.ResetAfter = ticks.CeilDuration(missing / limit * 1e9)
	}
	return d
}

// asInt returns n as far as an int can say.
func asInt(n int64) int { return int(min(n, math.MaxInt)) }
