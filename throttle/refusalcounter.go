package throttle

// A RefusalCounter is a Limiter that can report whether its decisions depend on the number
// of claims that it has rejected, as those of a keyed.Ban do. It does not count rejections
// of claims with Waits. When such a wait has failed, a queue.Queue repeats the claim once
// without Waits, so that a failed wait counts as one rejection. A limiter that wraps
// others counts rejections if one of them does.
type RefusalCounter interface {
	CountsRefusals() bool
}

// CountsRefusals reports whether l is a RefusalCounter whose decisions depend on the
// number of claims that it has rejected.
func CountsRefusals(l Limiter) bool {
	c, ok := l.(RefusalCounter)
	return ok && c.CountsRefusals()
}
