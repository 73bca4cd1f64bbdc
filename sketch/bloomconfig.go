package sketch

import (
	"fmt"
	"math"
)

const (
	defaultErrorRate = 0.01
	minErrorRate     = 1e-9
	safetyMargin     = 0.96 // share of ErrorRate that is planned for, so that measured rates stay below ErrorRate
	maxBytes         = min(1<<40, math.MaxInt/2)
)

// Validate returns an error that describes what to change if s is invalid.
func (s BloomConfig) Validate() error {
	switch {
	case s.Keys <= 0:
		return fmt.Errorf("sketch: BloomConfig: Keys is %d: it must be positive", s.Keys)
	case s.Bytes < 0 || s.Bytes > maxBytes:
		return fmt.Errorf("sketch: BloomConfig: Bytes is %d: it must lie between 0 and %d", s.Bytes, int64(maxBytes))
	}
	if err := validateProbability("BloomConfig", "ErrorRate", s.ErrorRate); err != nil {
		return err
	}
	if load, _ := s.maxLoad(pairLayout, 1); s.Bytes == 0 && float64(s.Keys)/load > maxBytes/cacheLineBytes {
		return fmt.Errorf("sketch: BloomConfig: %d keys need more than %d bytes: raise ErrorRate, or set Bytes", s.Keys, int64(maxBytes))
	}
	return nil
}

// validateProbability returns an error unless p is 0 or an error rate that sketches support.
func validateProbability(what, field string, p float64) error {
	if p != 0 && !(p >= minErrorRate && p < 1) {
		return fmt.Errorf("sketch: %s: %s is %v: it must lie between %v and 1, or be 0 for %v", what, field, p, minErrorRate, defaultErrorRate)
	}
	return nil
}

// A layout describes the bits of a key in a block: in each group the key selects one of the words
// of the group, and sets bits in it.
type layout struct{ groups, words int }

var (
	pairLayout = layout{groups: pairs, words: 2} // a block of Bloom
	wordLayout = layout{groups: 7, words: 1}     // a block of SlidingBloom; its eighth word is the number of the window
)

// maxPerGroup is the maximum number of bits that a key sets in one group.
const maxPerGroup = 4

// blockCount returns the number of blocks that s needs in each of windows windows, and the number
// of bits that a key sets in each group.
func (s BloomConfig) blockCount(g layout, windows int) (n, perGroup int) {
	if s.Bytes > 0 {
		n = int(max(s.Bytes/cacheLineBytes/int64(windows), 1))
		return n, g.bestBits(float64(s.Keys) / float64(n))
	}
	load, perGroup := s.maxLoad(g, windows)
	return int(math.Ceil(float64(s.Keys) / load)), perGroup
}

// maxLoad returns the largest mean number of keys per block that keeps the error rate if each test
// examines windows windows, and the number of bits per group for it.
func (s BloomConfig) maxLoad(g layout, windows int) (load float64, perGroup int) {
	rate := safetyMargin * orDefaultErrorRate(s.ErrorRate) / float64(windows)
	for bits := 1; bits <= maxPerGroup; bits++ {
		if l := maxLoadWithin(rate, func(load float64) float64 { return g.falsePositiveRate(load, bits) }); l > load {
			load, perGroup = l, bits
		}
	}
	return load, perGroup
}

// bestBits returns the number of bits per group with the lowest error rate at a mean of load keys
// per block.
func (g layout) bestBits(load float64) (perGroup int) {
	lowest := math.Inf(1)
	for bits := 1; bits <= maxPerGroup; bits++ {
		if r := g.falsePositiveRate(load, bits); r < lowest {
			lowest, perGroup = r, bits
		}
	}
	return perGroup
}

// falsePositiveRate returns the probability of a false positive at a mean of load keys per block,
// if each key sets bits in every group.
//
// The number of keys in a block has a Poisson distribution (Putze, Sanders, Singler 2007, section
// 3). Given that number, the groups are independent of each other.
func (g layout) falsePositiveRate(load float64, bits int) float64 {
	if load > saturatedLoad {
		return 1
	}
	full := g.fillProbabilities(bits)
	p, sum := math.Exp(-load), 0.0
	last := int(load + 12*math.Sqrt(load) + 30)
	for keys := 0; keys <= last; keys++ {
		sum += p * power(full(), g.groups)
		p *= load / float64(keys+1)
	}
	return min(sum, 1)
}

// saturatedLoad is a load at which every bit of a block is set.
const saturatedLoad = 700

// fillProbabilities returns a function whose i-th call returns the probability that all bits of a
// key are set in a group to which i-1 keys were added.
//
// With w words of 64 bits per group, one key leaves d given bits of a word unset with the
// probability 1 - 1/w + (1 - d/64)^bits / w; the probability that all of them are set follows by
// inclusion and exclusion. Some of the bits of a key may coincide, so the result is a mean over d.
func (g layout) fillProbabilities(bits int) func() float64 {
	var free, left [maxPerGroup + 1]float64
	for d := range bits + 1 {
		free[d] = 1 - 1/float64(g.words) + math.Pow(1-float64(d)/wordBits, float64(bits))/float64(g.words)
		left[d] = 1
	}
	chance := distinctProbabilities(bits)
	return func() (p float64) {
		for d := 1; d <= bits; d++ {
			sum, sign, choose := 0.0, 1.0, 1.0
			for m := 0; m <= d; m++ {
				sum += sign * choose * left[m]
				sign, choose = -sign, choose*float64(d-m)/float64(m+1)
			}
			p += chance[d] * max(sum, 0)
		}
		for d := range bits + 1 {
			left[d] *= free[d]
		}
		return p
	}
}

// power returns x to the power of n, for small positive n.
func power(x float64, n int) float64 {
	p := x
	for range n - 1 {
		p *= x
	}
	return p
}

// distinctProbabilities returns the probability, for each d, that draws random selections of one
// of 64 bits result in d different bits.
func distinctProbabilities(draws int) (chance [maxPerGroup + 1]float64) {
	chance[0] = 1
	for range draws {
		for d := draws; d >= 0; d-- {
			chance[d] *= float64(d) / wordBits
			if d > 0 {
				chance[d] += chance[d-1] * float64(wordBits-d+1) / wordBits
			}
		}
	}
	return chance
}

// maxLoadWithin returns the largest load at which f, which increases with it, is at most limit.
// The result is a few millionths too low at most, and never too high.
func maxLoadWithin(limit float64, f func(load float64) float64) float64 {
	lo, hi := math.Log(1e-12), math.Log(saturatedLoad)
	for range 24 {
		if mid := (lo + hi) / 2; f(math.Exp(mid)) <= limit {
			lo = mid
		} else {
			hi = mid
		}
	}
	return math.Exp(lo)
}

func orDefaultErrorRate(chance float64) float64 {
	if chance == 0 {
		return defaultErrorRate
	}
	return chance
}
