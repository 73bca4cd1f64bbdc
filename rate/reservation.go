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
	at        time.Time          // throttle.Decision.At
	wait      time.Duration      // throttle.Decision.Wait
	grant     uint64             // throttle.Decision.Grant
	whole     *throttle.Decision // of a limiter other than a bucket, which needs no more than the fields above to cancel it
	err       error
	cancelled atomic.Bool // Cancel was called, or there is nothing to cancel
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
	d, err := throttle.ReserveAhead(context.Background(), v.limiter, v.claim(now, n), throttle.Forever)
	r.at, r.wait, r.grant, r.err = d.At, d.Wait, d.Grant, err
	if v.bucket == nil {
		whole := d // a separate variable, so that d need not be allocated
		r.whole = &whole
	}
	switch {
	case err != nil, d.OK:
	case d.Wait == throttle.Forever:
		r.err = &throttle.RejectedError{Key: v.Key, Decision: d}
	default:
		r.err = fmt.Errorf("rate: ReserveN: no units available: use a limiter that books ahead, such as throttle.NewLeakyBucket with a Queue, or WaitN: %w",
			&throttle.RejectedError{Key: v.Key, Decision: d})
	}
	return r
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
	if r.wait = b.debt(r.at); r.wait == throttle.Forever {
		r.err = &throttle.RejectedError{Key: r.limiter.Key, Decision: throttle.Decision{At: r.at, Wait: r.wait}}
	}
}

// OK reports whether the units are reserved.
func (r *Reservation) OK() bool { return r.err == nil }

// Err returns nil if the units are reserved, else the reason why they are not. It matches
// throttle.ErrRejected if the limit rejected the claim.
func (r *Reservation) Err() error { return r.err }

// Delay returns how long to wait from now until the units may be used. It returns
// InfDuration if they are not reserved.
func (r *Reservation) Delay() time.Duration {
	return r.DelayFrom(throttle.ClockOr(r.limiter.Clock).Now())
}

// DelayFrom returns how long to wait from the given time until the units may be used. It
// returns InfDuration if they are not reserved.
func (r *Reservation) DelayFrom(now time.Time) time.Duration {
	if r.err != nil {
		return InfDuration
	}
	return max(r.at.Add(r.wait).Sub(now), 0)
}

// Cancel returns the units of r, which will not be used, to the limiter. It does nothing if r
// is not OK.
func (r *Reservation) Cancel() { r.CancelAt(time.Time{}) }

// CancelAt is Cancel as of now. A zero now means the current time. It returns the units that
// the limit has not yet restored, less those that would allow a later reservation to exceed
// the limit, and none after a change of the limit or burst. A second call does nothing.
func (r *Reservation) CancelAt(now time.Time) {
	if r.err != nil || r.cancelled.Swap(true) {
		return
	}
	c, f := r.limiter.claim(now, r.units), throttle.Feedback{Now: r.limiter.time(now), State: throttle.Unused}
	if r.whole != nil {
		r.limiter.limiter.Report(context.Background(), c, *r.whole, f)
	} else {
		r.limiter.bucket.Report(context.Background(), c, throttle.Decision{OK: true, At: r.at, Wait: r.wait, Grant: r.grant}, f)
	}
	r.limiter.waiters.Wake()
}
