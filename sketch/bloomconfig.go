package sketch

import (
	"fmt"
	"math"
)

const (
	defaultErrorRate = 0.01
	minErrorRate     = 1e-9
	safetyMargin     = 0.96 // of the rate asked for, so that what is measured stays below that
	maxBytes         = min(1<<40, math.MaxInt/2)
)

// Validate returns an error that says what to change if s can never work.
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

// validateProbability returns an error if p is neither 0 nor an error rate that a sketch supports.
func validateProbability(what, field string, p float64) error {
	if p != 0 && !(p >= minErrorRate && p < 1) {
		return fmt.Errorf("sketch: %s: %s is %v: it must lie between %v and 1, or be 0 for %v", what, field, p, minErrorRate, defaultErrorRate)
	}
	return nil
}

// A layout says how a key's bits lie in a block: in each of some groups the key picks
// one of so many words, and sets bits in it.
type layout struct{ groups, words int }

var (
	pairLayout = layout{groups: pairs, words: 2} // a block of Bloom
	wordLayout = layout{groups: 7, words: 1}     // a block of SlidingBloom; its eighth word is the window
)

// maxPerGroup is the most bits that a key sets in one group.
const maxPerGroup = 4

// blockCount returns how many blocks s needs, in each of panes, and how many bits a key
// then sets in each group.
func (s BloomConfig) blockCount(g layout, windows int) (n, perGroup int) {
	if s.Bytes > 0 {
		n = int(max(s.Bytes/cacheLineBytes/int64(windows), 1))
		return n, g.bestBits(float64(s.Keys) / float64(n))
	}
	load, perGroup := s.maxLoad(g, windows)
	return int(math.Ceil(float64(s.Keys) / load)), perGroup
}

// maxLoad returns the most keys per block that keep the error rate, if as many panes are
// asked in turn.
func (s BloomConfig) maxLoad(g layout, windows int) (load float64, perGroup int) {
	rate := safetyMargin * orDefaultErrorRate(s.ErrorRate) / float64(windows)
	for bits := 1; bits <= maxPerGroup; bits++ {
		if l := maxLoadWithin(rate, func(load float64) float64 { return g.falsePositiveRate(load, bits) }); l > load {
			load, perGroup = l, bits
		}
	}
	return load, perGroup
}

// bestBits returns how many bits in each group err least at so many keys per block.
func (g layout) bestBits(load float64) (perGroup int) {
	lowest := math.Inf(1)
	for bits := 1; bits <= maxPerGroup; bits++ {
		if r := g.falsePositiveRate(load, bits); r < lowest {
			lowest, perGroup = r, bits
		}
	}
	return perGroup
}

// falsePositiveRate returns the chance of a false positive at a mean of load keys per block, of
// which each sets bits in every group.
//
// How many keys meet in a block is Poisson (Putze, Sanders, Singler 2007, section 3).
// Given that number the groups are independent of each other.
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

// fillProbabilities returns a function that, called the i-th time, returns the chance that all
// bits of a key are set in a group to which i-1 keys were added.
//
// With w words of 64 bits, d given bits of a word are all free of a key with chance
// 1 - 1/w + (1 - d/64)^bits / w; that all of them are set follows by inclusion and
// exclusion. Some of a key's own bits may coincide, so the result is a mean over d.
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

// power returns x to the n, for small n.
func power(x float64, n int) float64 {
	p := x
	for range n - 1 {
		p *= x
	}
	return p
}

// distinctProbabilities returns the chances that so many draws of one of 64 bits give d different
// ones.
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

// maxLoadWithin returns the largest load at which f, which grows with it, is at most limit, to
// a few millionths; less than that, never more.
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
