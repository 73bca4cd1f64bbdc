package sketch

import (
	"sync/atomic"
)

// BloomConfig configures a Bloom filter: the number of keys and the error rate.
type BloomConfig struct {
	// Keys is the number of different keys that will be added. It must be positive.
	Keys int64

	// ErrorRate is the probability that Test is true for a key that was not added. Zero means
	// 0.01.
	ErrorRate float64

	// Bytes is the memory of the filter in bytes, instead of the memory that ErrorRate needs. Zero
	// means that ErrorRate determines the memory.
	Bytes int64

	// Seed is the seed of the hash. Zero means a random seed, which clients cannot know.
	Seed uint64
}

// Bloom remembers which keys were added, in about ten bits per key. It forgets none, but it may
// report a key that was not added: a false positive.
//
// The bits of a key are in one block of 64 bytes, a cache line, so that a test costs at most one
// cache miss (Putze, Sanders, Singler: Cache-, Hash- and Space-Efficient Bloom Filters, WEA 2007).
// A block consists of four pairs of words. A key selects one word of each pair, and sets one to
// four bits in it; two for an ErrorRate of 1 %:
//
//	block  │ w0  w1 │ w2  w3 │ w4  w5 │ w6  w7 │
//	         ▲▲           ▲▲        ▲▲   ▲▲
//
// Adding a key therefore takes at most four atomic operations instead of eight.
//
// Invariant: after Add has returned, Test is true for its key in all goroutines, indefinitely.
// ErrorRate is the probability that Test is true for other keys.
//
// Limitations: if two goroutines add the same new key at the same time, TestAndAdd may return
// false in both of them.
//
// A Bloom may be used by several goroutines at the same time. It takes no locks. The zero Bloom
// can only be used for UnmarshalBinary.
type Bloom struct {
	seed        uint64
	bitsPerPair int // bits that a key sets in each pair
	blocks      []block
}

// A block is one cache line. Go aligns large arrays to 64 bytes.
type block [2 * pairs]atomic.Uint64

const (
	pairs          = 4
	wordBits       = 64
	cacheLineBytes = 64
)

// NewBloom returns an empty filter. It panics if s is invalid; call s.Validate first if its
// numbers come from configuration.
func NewBloom(s BloomConfig) *Bloom {
	if err := s.Validate(); err != nil {
		panic(err.Error() + " (NewBloom)")
	}
	n, perPair := s.blockCount(pairLayout, 1)
	return &Bloom{seed: seedOrRandom(s.Seed), bitsPerPair: perPair, blocks: make([]block, n)}
}

// ErrorRate returns the probability that Test is true for a key that was not added, after the
// given number of different keys was added.
func (b *Bloom) ErrorRate(keys int64) float64 {
	return pairLayout.falsePositiveRate(float64(keys)/float64(len(b.blocks)), b.bitsPerPair)
}

// Bytes returns the memory of the bits in bytes.
func (b *Bloom) Bytes() int64 { return int64(len(b.blocks)) * cacheLineBytes }

// Add adds key.
func (b *Bloom) Add(key string) {
	h := hash(key, b.seed)
	line := &b.blocks[fastRange(h, len(b.blocks))]
	for i := range pairs {
		w, mask := b.wordAndMask(h, i)
		if word := &line[w]; mask&^word.Load() != 0 {
			word.Or(mask)
		}
	}
}

// Test reports whether key was added. It may be true for other keys, with the probability
// ErrorRate.
func (b *Bloom) Test(key string) bool {
	h := hash(key, b.seed)
	line := &b.blocks[fastRange(h, len(b.blocks))]
	var missing uint64
	for i := range pairs {
		w, mask := b.wordAndMask(h, i)
		missing |= mask &^ line[w].Load()
	}
	return missing == 0
}

// TestAndAdd adds key and returns what Test would have returned before.
func (b *Bloom) TestAndAdd(key string) bool {
	h := hash(key, b.seed)
	line := &b.blocks[fastRange(h, len(b.blocks))]
	var missing uint64
	for i := range pairs {
		w, mask := b.wordAndMask(h, i)
		word := &line[w]
		if m := mask &^ word.Load(); m != 0 {
			word.Or(mask)
			missing |= m
		}
	}
	return missing == 0
}

// wordAndMask returns the word of pair i that a key with hash h selects, and the bits that it sets
// there.
func (b *Bloom) wordAndMask(h uint64, i int) (word int, mask uint64) {
	x := h * oddMultipliers[i]
	word = i*2 + int(x>>63)
	for range b.bitsPerPair {
		x <<= 6
		mask |= 1 << (x >> 58)
	}
	return word, mask
}
