package sketch

import (
	"errors"
	"fmt"
	"math"

	"github.com/heed-go/heed/throttle"
)

// A LimiterConfig says what a Limiter allows each client, and how many clients it expects.
type LimiterConfig struct {
	throttle.Limit // of each client: Count units in any Per, by estimate; Burst must be 0 or Count

	Clients   int64   // different clients that are granted something within a Per, at most; must be positive
	Returning int64   // of these, how many take more than one unit; 0: a tenth of Clients
	ErrorRate float64 // chance that a client is taken to have used more than it has; 0: 0.01
	Bytes     int64   // memory to use instead of as much as ErrorRate needs; 0: as ErrorRate says
	Seed      uint64  // of the hash; 0: a random one, which outsiders cannot aim at
}

// maxCount leaves a counter room for several clients, and for debts.
const maxCount = 1 << 30

// Validate returns an error that says what to change if p can never work.
func (p LimiterConfig) Validate() error {
	if err := p.Limit.Validate(); err != nil {
		return err
	}
	switch {
	case p.Burst != 0 && p.Burst != p.Count:
		return fmt.Errorf("sketch: LimiterConfig %q: Burst is %d: it has none: leave it 0", p.Name, p.Burst)
	case p.Count > maxCount:
		return fmt.Errorf("sketch: LimiterConfig %q: Count is %d: it must be at most %d: count in larger units", p.Name, p.Count, maxCount)
	case p.Clients <= 0:
		return fmt.Errorf("sketch: LimiterConfig %q: Clients is %d: it must be positive", p.Name, p.Clients)
	case p.Returning < 0 || p.Returning > p.Clients:
		return fmt.Errorf("sketch: LimiterConfig %q: Returning is %d: it must lie between 0 and Clients", p.Name, p.Returning)
	case p.Bytes < 0 || p.Bytes > maxBytes:
		return fmt.Errorf("sketch: LimiterConfig %q: Bytes is %d: it must lie between 0 and %d", p.Name, p.Bytes, int64(maxBytes))
	}
	if err := validateProbability("LimiterConfig", "ErrorRate", p.ErrorRate); err != nil {
		return err
	}
	if p.Bytes == 0 && p.dimensionsFor(orDefaultErrorRate(p.ErrorRate)).bytes() > maxBytes {
		return errors.New("sketch: LimiterConfig: it needs more memory than there can be: raise ErrorRate, or set Bytes")
	}
	return nil
}

// dimensions says how a Limiter divides its memory.
type dimensions struct {
	blocks      float64 // of the Bloom filter, in each window
	bitsPerWord int
	lines       float64 // of the count-min sketch, in each window
}

func (r dimensions) bytes() float64 { return 2 * 8 * (r.blocks*bitWidth + r.lines*countWidth) }

// dimensionsFor returns the rooms for an error rate, of which each of two windows has a half.
//
// In one window a client is taken to have used too much in one of two ways. It has not
// come, and the Bloom filter errs; or it has, and all its counters are shared with other
// clients that are counted: failure with the weight of a client as t. Those counted are
// the ones that return, and the ones for whom the filter erred when they came.
func (p LimiterConfig) dimensionsFor(errorRate float64) dimensions {
	s := BloomConfig{Keys: p.Clients, ErrorRate: errorRate}
	load, perWord := s.maxLoad(wordLayout, 2)
	counted := float64(p.returning()) + errorRate/2*float64(p.Clients)
	mean := maxMean(safetyMargin*errorRate/2, combinationsFor(p.counterBits()))
	return dimensions{blocks: float64(p.Clients) / load, bitsPerWord: perWord, lines: counted / mean}
}

// dimensions returns the rooms for p: for its ErrorRate, or for the least one that its Bytes
// allow.
func (p LimiterConfig) dimensions() dimensions {
	if p.Bytes == 0 {
		return p.dimensionsFor(orDefaultErrorRate(p.ErrorRate))
	}
	lo, hi := math.Log(minErrorRate), 0.0
	for range 40 {
		if mid := (lo + hi) / 2; p.dimensionsFor(math.Exp(mid)).bytes() > float64(p.Bytes) {
			lo = mid
		} else {
			hi = mid
		}
	}
	r := p.dimensionsFor(math.Exp(hi))
	if scale := float64(p.Bytes) / r.bytes(); scale < 1 { // not even an error rate of 1 fits
		r.blocks, r.lines = r.blocks*scale, r.lines*scale
	}
	return r
}

func (p LimiterConfig) returning() int64 {
	if p.Returning == 0 {
		return (p.Clients + 9) / 10
	}
	return p.Returning
}

// counterBits is half the bits where that leaves room for twice the limit.
func (p LimiterConfig) counterBits() uint64 {
	if p.Count < 1<<15 {
		return 16
	}
	return 32
}
