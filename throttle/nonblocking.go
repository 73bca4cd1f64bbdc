package throttle

// A NonBlocking limiter can report that it keeps its state in memory: its methods return
// immediately and ignore ctx. A queue.Queue calls such limiters on behalf of a waiter from
// any goroutine that changes a limit, without holding a lock. A panic of the limiter is
// raised in the waiter on whose behalf it was called.
//
// All other limiters are called by the waiter itself, with its ctx, one call at a time for
// waiters with the same limits, and delay no other waiters. A limiter that is not
// NonBlocking is therefore always safe, and only somewhat slower. A limiter that wraps
// others is NonBlocking if all of them are.
type NonBlocking interface {
	NonBlocking() bool
}

// IsNonBlocking reports whether l implements NonBlocking and its NonBlocking method
// returns true.
func IsNonBlocking(l Limiter) bool {
	x, ok := l.(NonBlocking)
	return ok && x.NonBlocking()
}
