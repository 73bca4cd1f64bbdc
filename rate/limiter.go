// Package rate gives a throttle.Limiter the methods of the Limiter of golang.org/x/time/rate.
package rate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A Limiter gives any throttle.Limiter the methods of *rate.Limiter of
// golang.org/x/time/rate, for programs that are written for that package. Its fields must not
// change after the first call, and it must not be copied.
//
// It differs from x/time/rate in the following:
//
//   - A Wait whose ctx ends takes no units, and the waiters behind it move up. In x/time/rate
//     Wait takes the units when it begins, and loses a part of them when ctx ends.
//   - Allow returns false while callers wait for the same limit, so that it does not
//     overtake them.
//   - An error names the limit that rejected the claim, and states when to ask again, see
//     throttle.RefusedError.
//   - A time that is older than that of an earlier grant counts as that time. x/time/rate
//     adds the tokens of the time between twice.
//   - A negative n is an error. In x/time/rate it adds tokens. An n of 0 is always allowed
//     and takes no units.
//   - A claim that can never be granted is rejected. x/time/rate may grant it a reservation
//     with a delay of 292 years.
//   - A second Cancel of a Reservation does nothing. In x/time/rate it returns the tokens
//     again. A Cancel after the units could be used returns those that time has not yet
//     restored; in x/time/rate it returns none.
//
// Limitations: a claim ends when it is granted, with the outcome throttle.Accepted. Limiters that
// depend on the real outcome, such as adaptive.Limiter, or on when the work ends, such as
// throttle.Concurrency, need a queue.Ticket.
type Limiter struct {
	Limiter throttle.Limiter

	// Key is the throttle.Claim.Key of all claims.
	Key string

	// Queue is where Wait waits. Nil means a Queue of its own.
	Queue *queue.Queue

	// Clock is the clock of Reservation.Delay, and of the Limiter's own Queue. Nil means the
	// system clock.
	Clock throttle.Clock

	once     sync.Once
	ownQueue *queue.Queue
}

// A limitSetter is a throttle.Limiter whose limit can be changed while it is in use.
type limitSetter interface{ SetLimit(throttle.Limit) error }

// Allow reports whether one unit may be used now, and takes it.
func (v *Limiter) Allow() bool { return v.AllowN(time.Time{}, 1) }

// AllowN reports whether n units may be used as of now, and takes them. A zero now is read by
// the limiter. AllowN returns false if the limiter returns an error; ReserveN returns that
// error.
func (v *Limiter) AllowN(now time.Time, n int) bool {
	if n <= 0 {
		return n == 0
	}
	ctx, c := context.Background(), v.claim(now, n)
	if !v.queue().CanBypass(v.Limiter, v.Key) {
		return false
	}
	d, err := v.Limiter.Reserve(ctx, c)
	if err != nil || !d.OK {
		return false
	}
	throttle.Observe(ctx, v.Limiter, c, d, throttle.Feedback{Now: now})
	return true
}

// Reserve reserves one unit, which may be used after Reservation.Delay.
func (v *Limiter) Reserve() *Reservation { return v.ReserveN(time.Time{}, 1) }

// ReserveN reserves n units as of now. A zero now is read by the limiter. Units that are not
// available yet can be reserved only with a limiter that is a throttle.Booker, such as
// throttle.LeakyBucket and those of package warmup. With other limiters the Reservation is not OK
// unless the units can be used immediately.
//
// A Reservation keeps its units whatever happens later, and goes before callers of Wait. A
// program should use either Reserve or Wait.
func (v *Limiter) ReserveN(now time.Time, n int) *Reservation {
	r := &Reservation{limiter: v, claim: v.claim(now, n)}
	if n == 0 {
		r.decision.OK, r.decision.At = true, now
		r.cancelled.Store(true) // there are no units to return
		return r
	}
	r.decision, r.err = throttle.ReserveAhead(context.Background(), v.Limiter, r.claim, throttle.Forever)
	switch d := r.decision; {
	case r.err != nil:
		r.decision = throttle.Decision{}
	case d.OK:
	case d.Wait == throttle.Forever:
		r.err = &throttle.RefusedError{Key: v.Key, Decision: d}
	default:
		r.err = fmt.Errorf("rate: ReserveN: no units available: use a limiter that books ahead, such as LeakyBucket with a Queue, or WaitN: %w",
			&throttle.RefusedError{Key: v.Key, Decision: d})
	}
	return r
}

// Wait blocks until one unit may be used, and takes it.
func (v *Limiter) Wait(ctx context.Context) error { return v.WaitN(ctx, 1) }

// WaitN blocks until n units may be used, and takes them. Errors are those of
// queue.Queue.Wait, and throttle.ErrCost for a negative n. After an error no units are taken.
func (v *Limiter) WaitN(ctx context.Context, n int) error {
	switch {
	case n < 0:
		return throttle.ErrCost
	case n == 0:
		return context.Cause(ctx)
	}
	t := ticketPool.Get().(*queue.Ticket)
	t.Demands[0] = throttle.Demand{Limiter: v.Limiter, Key: v.Key, Cost: int64(n)}
	q := v.queue()
	err := q.Wait(ctx, t)
	if err == nil {
		q.Observe(ctx, t, throttle.Feedback{})
	}
	*t = queue.Ticket{}
	ticketPool.Put(t)
	return err
}

var ticketPool = sync.Pool{New: func() any { return new(queue.Ticket) }}

// SetLimit replaces the limit, and wakes the callers that the new limit grants. The error is
// that of throttle.Limit.Validate, or states that the limiter cannot change its limit.
func (v *Limiter) SetLimit(l throttle.Limit) error {
	s, ok := v.Limiter.(limitSetter)
	if !ok {
		return fmt.Errorf("rate: SetLimit: a %T cannot change its limit: use one with a method SetLimit, such as TokenBucket", v.Limiter)
	}
	if err := s.SetLimit(l); err != nil {
		return err
	}
	v.queue().Wake()
	return nil
}

func (v *Limiter) claim(now time.Time, n int) throttle.Claim {
	return throttle.Claim{Key: v.Key, Cost: int64(n), Now: now}
}

func (v *Limiter) queue() *queue.Queue {
	if v.Queue != nil {
		return v.Queue
	}
	v.once.Do(func() { v.ownQueue = &queue.Queue{Clock: v.Clock} })
	return v.ownQueue
}

// A Reservation holds units that may be used after a delay.
type Reservation struct {
	limiter   *Limiter
	claim     throttle.Claim
	decision  throttle.Decision
	err       error
	cancelled atomic.Bool // Cancel was called, or there is nothing to cancel
}

// OK reports whether the units are reserved.
func (r *Reservation) OK() bool { return r.err == nil }

// Err returns nil if the units are reserved, else the reason why they are not. It matches
// throttle.ErrRefused if the limit rejected the claim.
func (r *Reservation) Err() error { return r.err }

// Delay returns how long to wait from now until the units may be used. It returns
// throttle.Forever if they are not reserved.
func (r *Reservation) Delay() time.Duration {
	return r.DelayFrom(throttle.ClockOr(r.limiter.Clock).Now())
}

// DelayFrom returns how long to wait from the given time until the units may be used. It
// returns throttle.Forever if they are not reserved.
func (r *Reservation) DelayFrom(now time.Time) time.Duration {
	if r.err != nil {
		return throttle.Forever
	}
	if r.decision.Wait == 0 {
		return 0
	}
	return max(r.decision.At.Add(r.decision.Wait).Sub(now), 0)
}

// Cancel returns the units of r, which will not be used, as of now.
func (r *Reservation) Cancel() { r.CancelAt(time.Time{}) }

// CancelAt returns the units of r as of now. A zero now is read by the limiter. A second call
// does nothing.
func (r *Reservation) CancelAt(now time.Time) {
	if r.err != nil || r.cancelled.Swap(true) {
		return
	}
	c := r.claim
	c.Now = now
	r.limiter.Limiter.Cancel(context.Background(), c, r.decision)
	r.limiter.queue().Wake()
}
