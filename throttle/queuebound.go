package throttle

import "math"

// A queue bound is the maximum number of units that may wait for a limit. LeakyBucket,
// Nginx and TickQueue have one. A rejection of a claim with Waits carries it in
// Decision.queueBound, so that it passes through limiters that wrap others, and a
// queue.Queue obeys it.

// boundedBy returns d, a rejection of c, with a queue bound of n units.
func boundedBy(d Decision, c Claim, n int64) Decision {
	if c.Waits && !d.OK && n < math.MaxInt64 {
		d.queueBound = max(n, 0) + 1
	}
	return d
}
