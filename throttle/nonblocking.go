package throttle

// A NonBlocking limiter can report that it answers from memory: its methods return
// immediately and do not look at ctx. A queue.Queue asks such limiters for a caller in
// any goroutine that changes a limit, without a lock. A panic of the limiter reaches the
// caller that it was asked for.
//
// All other limiters are asked by the caller that waits, with its ctx, one question at a
// time for callers with the same limits, and delay no other callers. A limiter that is
// not NonBlocking is therefore always safe, and only somewhat slower. A limiter that
// wraps others is NonBlocking if they are.
type NonBlocking interface {
	NonBlocking() bool
}

// IsNonBlocking reports whether l is a NonBlocking limiter that answers from memory.
func IsNonBlocking(l Limiter) bool {
	x, ok := l.(NonBlocking)
	return ok && x.NonBlocking()
}
