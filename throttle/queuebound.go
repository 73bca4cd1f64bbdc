package throttle

import "math"

// A queue bound is how many units may wait for a limit: LeakyBucket, Nginx and TickQueue
// have one. A refusal of a claim that Waits carries it in Decision.queueBound, so that it
// passes through limiters that wrap others, and a queue.Queue obeys it.

// boundedBy returns d, a refusal of c, with the bound of n waiting units.
func boundedBy(d Decision, c Claim, n int64) Decision {
	if c.Waits && !d.OK && n < math.MaxInt64 {
		d.queueBound = max(n, 0) + 1
	}
	return d
}
