package sketch

import (
	"errors"
	"fmt"
	"math"

	"github.com/heed-go/heed/throttle"
)

// LimiterConfig configures a Limiter: the limit of each client, and the expected number of
// clients.
type LimiterConfig struct {
	// Limit is the limit of each client: Count units in any Per, estimated as by
	// throttle.NewSlidingCounter. Burst must be 0 or Count.
	Limit throttle.Limit

	// Clients is the maximum number of different clients that are granted something within a Per.
	// It must be positive.
	Clients int64

	// Returning is the number of these clients that take more than one unit. Zero means a tenth of
	// Clients.
	Returning int64

	// ErrorRate is the probability that the use of a client is overestimated. Zero means 0.01.
	ErrorRate float64

	// Bytes is the memory in bytes, instead of the memory that ErrorRate needs. Zero means that
	// ErrorRate determines the memory.
	Bytes int64

	// Seed is the seed of the hash. Zero means a random seed, which clients cannot know.
	Seed uint64
}

// maxCount is the maximum limit. It leaves space in a counter for several clients, and for costs
// beyond the limit.
const maxCount = 1 << 30

// Validate returns an error that describes what to change if p is invalid.
func (p LimiterConfig) Validate() error {
	if err := p.Limit.Validate(); err != nil {
		return err
	}
	switch {
	case p.Limit.Burst != 0 && p.Limit.Burst != p.Limit.Count:
		return fmt.Errorf("sketch: LimiterConfig %q: Burst is %d: it has none: leave it 0", p.Limit.Name, p.Limit.Burst)
	case p.Limit.Count > maxCount:
		return fmt.Errorf("sketch: LimiterConfig %q: Count is %d: it must be at most %d: count in larger units", p.Limit.Name, p.Limit.Count, maxCount)
	case p.Clients <= 0:
		return fmt.Errorf("sketch: LimiterConfig %q: Clients is %d: it must be positive", p.Limit.Name, p.Clients)
	case p.Returning < 0 || p.Returning > p.Clients:
		return fmt.Errorf("sketch: LimiterConfig %q: Returning is %d: it must lie between 0 and Clients", p.Limit.Name, p.Returning)
	case p.Bytes < 0 || p.Bytes > maxBytes:
		return fmt.Errorf("sketch: LimiterConfig %q: Bytes is %d: it must lie between 0 and %d", p.Limit.Name, p.Bytes, int64(maxBytes))
	}
	if err := validateProbability("LimiterConfig", "ErrorRate", p.ErrorRate); err != nil {
		return err
	}
	if p.Bytes == 0 && p.dimensionsFor(orDefaultErrorRate(p.ErrorRate)).bytes() > maxBytes {
		return errors.New("sketch: LimiterConfig: it needs more memory than there can be: raise ErrorRate, or set Bytes")
	}
	return nil
}

// dimensions are the sizes of the parts of a Limiter.
type dimensions struct {
	blocks      float64 // of the Bloom filter, in each window
	bitsPerWord int
	lines       float64 // of the count-min sketch, in each window
}

func (r dimensions) bytes() float64 { return 2 * 8 * (r.blocks*bitWidth + r.lines*countWidth) }

// dimensionsFor returns the dimensions for an error rate. Each of the two windows may contribute
// half of it.
//
// In one window the use of a client is overestimated in one of two cases. In the first case the
// client has used nothing, and the Bloom filter has a false positive. In the second case the
// client has used something, and all of its counters are shared with other clients that are
// counted: see failureProbability, with the weight of one client as t. The clients that are
// counted are those that take more than one unit, and those whose first unit met a false positive.
func (p LimiterConfig) dimensionsFor(errorRate float64) dimensions {
	s := BloomConfig{Keys: p.Clients, ErrorRate: errorRate}
	load, perWord := s.maxLoad(wordLayout, 2)
	counted := float64(p.returning()) + errorRate/2*float64(p.Clients)
	mean := maxMean(safetyMargin*errorRate/2, combinationsFor(p.counterBits()))
	return dimensions{blocks: float64(p.Clients) / load, bitsPerWord: perWord, lines: counted / mean}
}

// dimensions returns the dimensions for ErrorRate, rounded up, or those for the lowest error rate
// that Bytes allows.
func (p LimiterConfig) dimensions() dimensions {
	if p.Bytes == 0 {
		r := p.dimensionsFor(orDefaultErrorRate(p.ErrorRate))
		r.blocks, r.lines = math.Ceil(r.blocks), math.Ceil(r.lines)
		return r
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
		return (p.Clients-1)/10 + 1
	}
	return p.Returning
}

// counterBits returns the number of bits of a counter: 16 if a counter of 16 bits can hold twice
// the limit, otherwise 32.
func (p LimiterConfig) counterBits() uint64 {
	if p.Limit.Count < 1<<15 {
		return 16
	}
	return 32
}
