package simulation

import (
	"math"
	"math/rand/v2"
	"time"
)

// A Latency is a distribution of the times that a server takes for a response.
type Latency struct {
	Mean   time.Duration
	Spread time.Duration // uniformly distributed around Mean: the maximum distance from it

	// Noise is the standard deviation of the logarithm of a random factor, which has a
	// lognormal distribution and a mean of 1. Zero means a factor of 1.
	Noise float64
}

// Between returns a uniform distribution.
func Between(low, high time.Duration) Latency {
	return Latency{Mean: (low + high) / 2, Spread: (high - low) / 2}
}

// draw returns a time of the distribution. What it takes from random does not depend on l.
func (l Latency) draw(random *rand.Rand) time.Duration {
	uniform, normal := random.Float64(), random.NormFloat64()
	t := float64(l.Mean) + (2*uniform-1)*float64(l.Spread)
	return time.Duration(t * math.Exp(l.Noise*normal-l.Noise*l.Noise/2))
}
