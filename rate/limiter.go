// Package rate gives a throttle.Limiter the API of golang.org/x/time/rate.
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

// A Limiter gives any throttle.Limiter the methods of a *rate.Limiter of
// golang.org/x/time/rate, for programs that are written in its manner. Its fields must not change after the first
// call, and it must not be copied.
//
// What is different, for the better:
//
//   - Who stops waiting has taken nothing, and those behind move up. There, units are
//     taken when the wait begins, and a part of them is lost when it is given up.
//   - Allow does not overtake those who Wait.
//   - Errors say which limit refused, and when it may be asked again: *throttle.RefusedError.
//   - A reading of the clock older than one granted at counts as that one; there it
//     credits the time between twice.
//   - A negative n is an error; there it adds tokens. An n of 0 costs nothing and is
//     always allowed.
//   - What can never be granted is refused, never booked for in 292 years.
//   - A second Cancel does nothing; there it gives back twice. A late one gives back what
//     time has not; there nothing.
//
// A claim ends where it is granted, as used and accepted. Limits that want to know what
// came of it (throttle.Adaptive, throttle.Concurrency) are for callers that report it, with
// a queue.Ticket.
type Limiter struct {
	Limiter throttle.Limiter
	Key     string         // Claim.Key
	Queue   *queue.Queue   // where Wait stands in line; nil: one of its own
	Clock   throttle.Clock // for Reservation.Delay and a Queue of its own; nil: the system clock

	once     sync.Once
	ownQueue *queue.Queue
}

// A limitSetter limiter can change its limit while it is in use.
type limitSetter interface{ SetLimit(throttle.Limit) error }

// Allow reports whether one unit may be used now.
func (v *Limiter) Allow() bool { return v.AllowN(time.Time{}, 1) }

// AllowN reports whether n units may be used as of now; a zero now is the limiter's own
// reading. It is false as well if no decision was reached; ReserveN says why.
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

// Reserve books one unit: the caller may use it after Reservation.Delay.
func (v *Limiter) Reserve() *Reservation { return v.ReserveN(time.Time{}, 1) }

// ReserveN books n units as of now; a zero now is the limiter's own reading. The
// limiter has to be one that books ahead, as throttle.LeakyBucket and those of package warmup do;
// others give only what can be used at once.
//
// What is reserved has its place whatever happens later, and goes before those who
// Wait. Use one or the other.
func (v *Limiter) ReserveN(now time.Time, n int) *Reservation {
	r := &Reservation{limiter: v, claim: v.claim(now, n)}
	if n == 0 {
		r.decision.OK, r.decision.At = true, now
		r.cancelled.Store(true) // there is nothing to give back
		return r
	}
	r.claim.MaxWait = throttle.Forever
	r.decision, r.err = v.Limiter.Reserve(context.Background(), r.claim)
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

// Wait blocks until one unit may be used.
func (v *Limiter) Wait(ctx context.Context) error { return v.WaitN(ctx, 1) }

// WaitN blocks until n units may be used. Errors are those of queue.Queue.Wait; after an
// error nothing is taken.
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

// SetLimit replaces the limit, and lets those go who may under the new one. The error
// is that of throttle.Limit.Validate, or says that the limiter cannot change its limit.
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

// A Reservation is units that are booked.
type Reservation struct {
	limiter   *Limiter
	claim     throttle.Claim
	decision  throttle.Decision
	err       error
	cancelled atomic.Bool // cancelled
}

// OK reports whether the units are booked.
func (r *Reservation) OK() bool { return r.err == nil }

// Err returns why the units are not booked, which matches ErrRefused if the limit
// refused them; nil if they are.
func (r *Reservation) Err() error { return r.err }

// Delay returns how long to wait from now until the units may be used, throttle.Forever if they
// are not booked.
func (r *Reservation) Delay() time.Duration {
	return r.DelayFrom(throttle.ClockOr(r.limiter.Clock).Now())
}

// DelayFrom is Delay as of now.
func (r *Reservation) DelayFrom(now time.Time) time.Duration {
	if r.err != nil {
		return throttle.Forever
	}
	if r.decision.Wait == 0 {
		return 0
	}
	return max(r.decision.At.Add(r.decision.Wait).Sub(now), 0)
}

// Cancel gives the units back that will not be used.
func (r *Reservation) Cancel() { r.CancelAt(time.Time{}) }

// CancelAt is Cancel as of now; a zero now is the limiter's own reading. What has been
// cancelled once stays so.
func (r *Reservation) CancelAt(now time.Time) {
	if r.err != nil || r.cancelled.Swap(true) {
		return
	}
	c := r.claim
	c.Now = now
	r.limiter.Limiter.Cancel(context.Background(), c, r.decision)
	r.limiter.queue().Wake()
}
