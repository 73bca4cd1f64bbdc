// Package xtime makes a *rate.Limiter of golang.org/x/time/rate a throttle.Limiter.
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

// New returns a throttle.Limiter that takes its tokens from l. Code that calls l itself shares
// these tokens. The name is used as throttle.Decision.Policy. New panics if l is nil.
//
// The Limiter decides by l.AllowN and does not reserve units in advance. The properties of l
// remain:
//
//   - Tokens are a float64 and waits are truncated to nanoseconds, so that l grants units that
//     are due within the next nanosecond. throttle.NewTokenBucket is exact.
//   - A limit of 0 adds no tokens: once the burst is used, the wait is throttle.Forever. A
//     limit of rate.Inf grants all claims, and throttle.Decision.Limit is 0.
//   - SetLimit and SetBurst of l take effect immediately, at the time of the system clock.
//     Call queue.Queue.Wake after them.
//
// Two properties differ. A time older than that of an earlier grant counts as that time,
// where l would add the tokens of the time between twice; this applies to claims of the
// Limiter, not to calls of l itself. Unused claims are also returned after they could be used:
// Report returns the whole units that time has not yet restored. It returns none while l has a
// negative number of tokens because of reservations, as l could then grant the same units
// twice.
func New(l *rate.Limiter, name string) throttle.Limiter {
	if l == nil {
		panic("xtime: New: the limiter is nil: make one with rate.NewLimiter, or use throttle.AllowAll")
	}
	return &limiter{l: l, name: name, clock: throttle.ClockOr(nil)}
}

// A limiter is a throttle.Limiter that uses a *rate.Limiter.
type limiter struct {
	l     *rate.Limiter
	name  string
	clock throttle.Clock

	mu   sync.Mutex
	last time.Time // latest time of a grant or of returned units: l must not be called with an older one
}

// SetClock replaces the clock; see throttle.WithClock.
func (r *limiter) SetClock(c throttle.Clock) { r.clock = throttle.ClockOr(c) }

// Reserve implements throttle.Limiter.
func (r *limiter) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
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
		if d.OK = c.DryRun; !d.OK { // other claims returned units just now
			d.Wait = 1
		}
	}
	d.Fresh = c.DryRun && d.Limit > 0 && d.Remaining == d.Limit && d.ResetAfter == 0
	return d, nil
}

// Report implements throttle.Limiter. It ignores the actual cost.
func (r *limiter) Report(_ context.Context, c throttle.Claim, d throttle.Decision, f throttle.Feedback) {
	n, err := c.Units()
	if err != nil || !d.OK || f.State != throttle.Unused {
		return
	}
	granted := math.Float64frombits(d.Grant)
	if granted == float64(rate.Inf) {
		return // the claim took no tokens
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.read(f.Now)
	if now.Before(d.At) {
		now = d.At
	}
	if r.l.TokensAt(now) < 0 {
		return // reservations of l are outstanding
	}
	back := max(granted, float64(r.l.Limit())) * now.Sub(d.At).Seconds()
	if left := math.Floor(float64(n) - back); left > 0 && r.l.AllowN(now, -asInt(int64(left))) {
		r.last = now
	}
}

// Traits implements throttle.Limiter.
func (*limiter) Traits() throttle.Traits {
	return throttle.Traits{NonBlocking: true, EndsAtResponse: true}
}

// read returns the time as of which a claim is decided.
func (r *limiter) read(now time.Time) time.Time {
	if now.IsZero() {
		now = r.clock.Now()
	}
	if now.Before(r.last) {
		return r.last
	}
	return now
}

// wait returns how long a claim of n units must wait; 0 means that it would be granted.
//
// Half a nanosecond is subtracted because l grants units that are due within a nanosecond, so
// that a wait of whole nanoseconds is not rounded up. The other term is the maximum rounding
// error of float64.
func (r *limiter) wait(n int64, now time.Time) time.Duration {
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

// describe returns a Decision with the state of l as of now.
func (r *limiter) describe(now time.Time) throttle.Decision {
	d := throttle.Decision{Policy: r.name, At: now}
	limit, tokens := float64(r.l.Limit()), r.l.TokensAt(now)
	if limit == float64(rate.Inf) {
		return d
	}
	d.Limit = int64(r.l.Burst())
	soon := math.Ceil(tokens+limit/1e9) - 1 // includes the units that l grants a nanosecond early
	d.Remaining = min(ticks.Int64(max(math.Floor(tokens), soon, 0)), d.Limit)
	if missing := float64(d.Limit) - tokens; missing > 0 {
		d.ResetAfter = ticks.CeilDuration(missing / limit * 1e9)
	}
	return d
}

// asInt returns n, or the largest int if n is larger.
func asInt(n int64) int { return int(min(n, math.MaxInt)) }
