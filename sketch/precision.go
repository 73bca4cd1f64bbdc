package sketch

import (
	"fmt"
	"math"
)

// Precision says how much a count may be too high, and how often more than that.
type Precision struct {
	Epsilon float64 // most by which a count is too high, as a share of all that is added; 0: 0.0001
	Delta   float64 // share of the keys whose count is off by more; 0: 0.01
	Bytes   int64   // memory to use instead of as much as Epsilon and Delta need; 0: as they say
	Seed    uint64  // of the hash; 0: a random one, which outsiders cannot aim at
}

const (
	defaultEpsilon = 0.0001
	leastEpsilon   = 1e-12
)

// combinations is in how many ways a key's counters can lie in a line.
const combinations = cells * perRest * perRest * perRest

// Validate returns an error that says what to change if p can never work.
func (p Precision) Validate() error {
	switch {
	case p.Epsilon != 0 && !(p.Epsilon >= leastEpsilon && p.Epsilon < 1):
		return fmt.Errorf("sketch: precision: Epsilon is %v: it must lie between %v and 1, or be 0 for %v", p.Epsilon, leastEpsilon, defaultEpsilon)
	case p.Bytes < 0 || p.Bytes > maxBytes:
		return fmt.Errorf("sketch: precision: Bytes is %d: it must lie between 0 and %d", p.Bytes, int64(maxBytes))
	}
	if err := validChance("precision", "Delta", p.Delta); err != nil {
		return err
	}
	if p.Bytes == 0 && p.need() > maxBytes/pairBytes {
		return fmt.Errorf("sketch: precision: an Epsilon of %v needs more than %d bytes: raise it, or set Bytes", p.Epsilon, int64(maxBytes))
	}
	return nil
}

// lines returns how many lines the table needs.
func (p Precision) lines() int {
	if p.Bytes > 0 {
		return int(max(p.Bytes/pairBytes, 1))
	}
	return int(math.Ceil(p.need()))
}

func (p Precision) need() float64 {
	return 1 / (p.epsilon() * largestMean(orDefault(p.Delta), combinations))
}

func (p Precision) epsilon() float64 {
	if p.Epsilon == 0 {
		return defaultEpsilon
	}
	return p.Epsilon
}

// failure returns a bound on the chance that all of a key's counters are too high by
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
func failure(mean, ways float64) float64 {
	return min(mean*(1+mean*(7+mean*(6+mean)))/ways, 1)
}

// largestMean returns the largest mean at which failure is no more than chance.
func largestMean(chance, ways float64) float64 {
	return largest(chance, func(mean float64) float64 { return failure(mean, ways) })
}
