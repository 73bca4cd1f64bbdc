package sketch

import (
	"fmt"
	"math"
)

// CountMinConfig says how much a count may be too high, and how often more than that.
type CountMinConfig struct {
	Epsilon float64 // most by which a count is too high, as a share of all that is added; 0: 0.0001
	Delta   float64 // share of the keys whose count is off by more; 0: 0.01
	Bytes   int64   // memory to use instead of as much as Epsilon and Delta need; 0: as they say
	Seed    uint64  // of the hash; 0: a random one, which outsiders cannot aim at
}

const (
	defaultEpsilon = 0.0001
	minEpsilon     = 1e-12
)

// combinations is in how many ways a key's counters can lie in a line.
const combinations = cells * countersPerRow * countersPerRow * countersPerRow

// Validate returns an error that says what to change if p can never work.
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

// lines returns how many lines the table needs.
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

// failureProbability returns a bound on the chance that all of a key's counters are too high by
// t or more, for ways in which the four can lie in a line, and mean = N/(t*lines),
// where N is all that was added.
//
// Let another key weigh s: what was added to it, but at most t, for more makes no
// difference. It is in the same line with chance 1/lines, and then in the counter of
// row r with chance 1/size(r), independently of other rows. That all four sums reach t
// is at most as likely as the mean of their product divided by t^4 (Markov). Summed up
// over all choices of four keys, of which j are different, the product is at most
//
//	S(4,j) * t^4 * mean^j / ways
//
// with S(4,j) = 1, 7, 6, 1 for j = 1 to 4, the Stirling numbers of the second kind. It
// needs nothing to be known of what is added, not even that keys are many.
func failureProbability(mean, combinations float64) float64 {
	return min(mean*(1+mean*(7+mean*(6+mean)))/combinations, 1)
}

// maxMean returns the largest mean at which failure is no more than chance.
func maxMean(chance, combinations float64) float64 {
	return maxLoadWithin(chance, func(mean float64) float64 { return failureProbability(mean, combinations) })
}
