package sketch

import (
	"fmt"
	"math"
)

// CountMinConfig configures a CountMin: by how much a count may be too high, and for how many keys
// it may be higher than that.
type CountMinConfig struct {
	// Epsilon is the maximum error of a count, as a share of the sum for all keys. Zero means
	// 0.0001.
	Epsilon float64

	// Delta is the share of the keys whose error may exceed Epsilon. Zero means 0.01.
	Delta float64

	// Bytes is the memory of the counters in bytes, instead of the memory that Epsilon and Delta
	// need. Zero means that Epsilon and Delta determine the memory.
	Bytes int64

	// Seed is the seed of the hash. Zero means a random seed, which clients cannot know.
	Seed uint64
}

const (
	defaultEpsilon = 0.0001
	minEpsilon     = 1e-12
)

// combinations is the number of combinations of counters that a key can have in a line.
const combinations = cells * countersPerRow * countersPerRow * countersPerRow

// Validate returns an error that describes what to change if p is invalid.
func (p CountMinConfig) Validate() error {
	switch {
	case p.Epsilon != 0 && !(p.Epsilon >= minEpsilon && p.Epsilon < 1):
		return fmt.Errorf("sketch: CountMinConfig: Epsilon is %v: it must lie between %v and 1, or be 0 for %v", p.Epsilon, minEpsilon, defaultEpsilon)
	case p.Bytes < 0 || p.Bytes > maxBytes:
		return fmt.Errorf("sketch: CountMinConfig: Bytes is %d: it must lie between 0 and %d", p.Bytes, int64(maxBytes))
	}
	if err := validateProbability("CountMinConfig", "Delta", p.Delta); err != nil {
		return err
	}
	if p.Bytes == 0 && p.linesNeeded() > maxBytes/countMinLineBytes {
		return fmt.Errorf("sketch: CountMinConfig: an Epsilon of %v needs more than %d bytes: raise it, or set Bytes", p.Epsilon, int64(maxBytes))
	}
	return nil
}

// lines returns the number of lines of the table.
func (p CountMinConfig) lines() int {
	if p.Bytes > 0 {
		return int(max(p.Bytes/countMinLineBytes, 1))
	}
	return int(math.Ceil(p.linesNeeded()))
}

func (p CountMinConfig) linesNeeded() float64 {
	return 1 / (p.epsilon() * maxMean(orDefaultErrorRate(p.Delta), combinations))
}

func (p CountMinConfig) epsilon() float64 {
	if p.Epsilon == 0 {
		return defaultEpsilon
	}
	return p.Epsilon
}

// failureProbability returns an upper bound on the probability that all counters of a key are too
// high by t or more. A key has one of the given number of combinations of counters in a line; mean
// is N/(t*lines), where N is the sum for all keys.
//
// Let the weight s of another key be the sum of what was added to it, but at most t, since larger
// values make no difference. The other key is in the same line with the probability 1/lines, and
// then it shares the counter of row r with the probability 1/size(r), independently of other rows.
// By Markov's inequality, the probability that all four sums reach t is at most the mean of their
// product divided by t^4. Summed over all choices of four keys, of which j are different, the
// product is at most
//
//	S(4,j) * t^4 * mean^j / combinations
//
// with S(4,j) = 1, 7, 6, 1 for j = 1 to 4, the Stirling numbers of the second kind. The bound
// makes no assumption about what is added, nor about the number of keys.
func failureProbability(mean, combinations float64) float64 {
	return min(mean*(1+mean*(7+mean*(6+mean)))/combinations, 1)
}

// maxMean returns the largest mean at which failureProbability is at most chance.
func maxMean(chance, combinations float64) float64 {
	return maxLoadWithin(chance, func(mean float64) float64 { return failureProbability(mean, combinations) })
}
