package rate

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// A Reservation holds units that may be used after a delay.
type Reservation struct {
	limiter   *Limiter
	units     int
	at        time.Time   // when the units may be used: throttle.Decision.At + Wait
	grant     uint64      // throttle.Decision.Grant
	outcome   *outcome    // nil: granted by a bucket, which needs no more than the fields above to cancel it
	cancelled atomic.Bool // Cancel was called, or there is nothing to cancel
}

// An outcome is the decision on a Reservation and the reason why it is not OK, if it is not.
type outcome struct {
	throttle.RejectedError
	err error
}

// Reserve reserves one unit, which may be used after Reservation.Delay.
func (v *Limiter) Reserve() *Reservation { return v.ReserveN(time.Time{}, 1) }

// ReserveN reserves n units as of now. A zero now means the current time. The Reservation is
// not OK if n is larger than the burst or negative, if the limit is 0 and fewer than n units
// are left, and in the cases that New describes. Reservation.Err states the reason.
//
// A Reservation keeps its units whatever happens later, and goes before callers of Wait. A
// program should use either Reserve or Wait.
func (v *Limiter) ReserveN(now time.Time, n int) *Reservation {
	v.once.Do(v.init)
	r := &Reservation{limiter: v, units: n}
	if n == 0 {
		r.reserveNothing(v.time(now))
		return r
	}
	c, l := v.claim(now, n), v.decider()
	if l.Traits().BooksAhead { // as throttle.ReserveAhead, without its copy of the Decision
		c.Ahead = throttle.Forever
	}
	d, err := l.Reserve(context.Background(), c)
	r.at, r.grant = d.At.Add(d.Wait), d.Grant
	if v.bucket == nil || err != nil || !d.OK {
		r.outcome = newOutcome(v.Key, d, err)
	}
	return r
}

// newOutcome returns the outcome of a claim on which a limiter decided d, or that failed with err.
func newOutcome(key string, d throttle.Decision, err error) *outcome {
	o := &outcome{throttle.RejectedError{Key: key, Decision: d}, err}
	switch {
	case err != nil, d.OK:
	case d.Wait == throttle.Forever:
		o.err = &o.RejectedError
	default:
		o.err = fmt.Errorf("rate: ReserveN: no units available: use a limiter that books ahead, such as throttle.NewLeakyBucket with a Queue, or WaitN: %w",
			&o.RejectedError)
	}
	return o
}

// reserveNothing makes r a reservation of no units, which may be used when the bucket has no
// debt.
func (r *Reservation) reserveNothing(now time.Time) {
	r.cancelled.Store(true)
	r.at = orNow(now)
	b := r.limiter.bucket
	if b == nil {
		return
	}
	wait := b.debt(r.at)
	if wait == throttle.Forever {
		r.outcome = newOutcome(r.limiter.Key, throttle.Decision{At: r.at, Wait: wait}, nil)
	}
	r.at = r.at.Add(wait)
}

// OK reports whether the units are reserved.
func (r *Reservation) OK() bool { return r.Err() == nil }

// Err returns nil if the units are reserved, else the reason why they are not. It matches
// throttle.ErrRejected if the limit rejected the claim.
func (r *Reservation) Err() error {
	if r.outcome == nil {
		return nil
	}
	return r.outcome.err
}

// Delay returns how long to wait from now until the units may be used. It returns
// InfDuration if they are not reserved.
func (r *Reservation) Delay() time.Duration {
	return r.DelayFrom(throttle.ClockOr(r.limiter.Clock).Now())
}

// DelayFrom returns how long to wait from the given time until the units may be used. It
// returns InfDuration if they are not reserved.
func (r *Reservation) DelayFrom(now time.Time) time.Duration {
	if !r.OK() {
		return InfDuration
	}
	return max(r.at.Sub(now), 0)
}

// Cancel returns the units of r, which will not be used, to the limiter. It does nothing if r
// is not OK.
func (r *Reservation) Cancel() { r.CancelAt(time.Time{}) }

// CancelAt is Cancel as of now. A zero now means the current time. It returns the units that
// the limit has not yet restored, less those that would allow a later reservation to exceed
// the limit, and none after a change of the limit or burst. A second call does nothing.
func (r *Reservation) CancelAt(now time.Time) {
	if !r.OK() || r.cancelled.Swap(true) {
		return
	}
	v, d := r.limiter, throttle.Decision{OK: true, At: r.at, Grant: r.grant}
	if r.outcome != nil {
		d = r.outcome.Decision
	}
	c := v.claim(now, r.units)
	v.decider().Report(context.Background(), c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
	v.waiters.Wake()
}
