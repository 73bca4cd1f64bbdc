package throttle

import (
	"context"
	"time"
)

// A Holder is a Limiter that may need to know when the work of a claim has ended, as a
// limit on concurrency does. Code that admits HTTP requests reports the end of the
// response's body to a Holder with a second feedback: see Feedback.Partial. All other
// limiters get one feedback, when the response has begun.
//
// A limiter that wraps others holds until the end if one of them does. The result of
// HoldsUntilEnd may become true with the first grant, and stays true from then on.
type Holder interface {
	HoldsUntilEnd() bool
}

// HoldsUntilEnd reports whether l is a Holder whose claims last until the work has ended.
func HoldsUntilEnd(l Limiter) bool {
	h, ok := l.(Holder)
	return ok && h.HoldsUntilEnd()
}

// IsNonBlocking reports whether l has a method NonBlocking() bool that returns true: it
// keeps its state in memory, so that its methods return immediately and ignore ctx. A
// queue.Queue calls such limiters on behalf of a waiter from any goroutine that changes a
// limit, without holding a lock. A panic of the limiter is raised in the waiter on whose
// behalf it was called.
//
// All other limiters are called by the waiter itself, with its ctx, one call at a time for
// waiters with the same limits, and delay no other waiters. A limiter without the method is
// therefore always safe, and only somewhat slower. A limiter that wraps others is
// non-blocking if all of them are.
func IsNonBlocking(l Limiter) bool {
	x, ok := l.(interface{ NonBlocking() bool })
	return ok && x.NonBlocking()
}

// CountsRefusals reports whether l has a method CountsRefusals() bool that returns true:
// its decisions depend on the number of claims that it has rejected, as those of a
// keyed.Ban do. It must not count rejections of claims with Waits. When such a wait has
// failed, a queue.Queue repeats the claim once without Waits, so that a failed wait counts
// as one rejection. A limiter that wraps others counts rejections if one of them does.
func CountsRefusals(l Limiter) bool {
	x, ok := l.(interface{ CountsRefusals() bool })
	return ok && x.CountsRefusals()
}

// IsEvictable reports whether the state of l for key at the instant now equals that of a
// new limiter, so that replacing it with a new one changes no decision. If it does not,
// recheckAfter is the time after which to ask again. A keyed.Limiter asks before it evicts
// a limiter.
//
// IsEvictable calls the method Evictable(now time.Time) bool of l if it has one. Otherwise
// it uses a dry run: the limiter is evictable if all units are available and none are being
// restored. That is sufficient for a limiter with a single limit. A limiter that is composed
// of several must have the method and ask all of them.
func IsEvictable(l Limiter, key string, now time.Time) (evictable bool, recheckAfter time.Duration) {
	if x, ok := l.(interface{ Evictable(now time.Time) bool }); ok {
		return x.Evictable(now), evictionRecheck
	}
	d, err := l.Reserve(context.Background(), Claim{Key: key, Now: now, DryRun: true})
	switch {
	case err != nil:
		return false, evictionRecheck
	case d.ResetAfter > 0:
		return false, max(d.At.Add(d.ResetAfter).Sub(now), 1)
	}
	return d.OK && d.Limit > 0 && d.Remaining == d.Limit, evictionRecheck
}

// evictionRecheck is the time after which to ask again if the limiter does not state one.
const evictionRecheck = time.Second

func allEvictable(now time.Time, ls ...Limiter) bool {
	for _, l := range ls {
		if evictable, _ := IsEvictable(l, "", now); !evictable {
			return false
		}
	}
	return true
}
