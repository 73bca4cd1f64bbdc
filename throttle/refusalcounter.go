package throttle

// A RefusalCounter is a Limiter that can say whether its decisions depend on how many
// claims it has refused, as those of a keyed.Ban do. It counts no refusal of a claim that
// Waits. When such a wait has failed, a queue.Queue repeats the claim once without Waits, so
// that a wait counts as one refusal. Limiters that wrap others report it for them.
type RefusalCounter interface {
	CountsRefusals() bool
}

// CountsRefusals reports whether l is a RefusalCounter whose decisions depend on how many
// claims it has refused.
func CountsRefusals(l Limiter) bool {
	c, ok := l.(RefusalCounter)
	return ok && c.CountsRefusals()
}
