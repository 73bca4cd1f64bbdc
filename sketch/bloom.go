package sketch

import (
	"sync/atomic"
)

// BloomConfig says for how many keys a Bloom filter has room, and how often it may err.
type BloomConfig struct {
	Keys      int64   // different keys that will be added; must be positive
	ErrorRate float64 // chance that a key which was not added seems to have been; 0: 0.01
	Bytes     int64   // memory to use instead of as much as ErrorRate needs; 0: as ErrorRate says
	Seed      uint64  // of the hash; 0: a random one, which outsiders cannot aim at
}

// Bloom remembers which keys were added, in about ten bits each. It forgets none; but
// it may take a key for one that was added though it was not: a false positive.
//
// The bits of a key lie in one block of 64 bytes, a cache line, so that a test costs
// at most one miss of the cache (Putze, Sanders, Singler: Cache-, Hash- and
// Space-Efficient Bloom Filters, WEA 2007). A block is four pairs of words. A key
// picks one word of each pair, and sets one to four bits in it, two for an ErrorRate of
// 1 %:
//
//	block  │ w0  w1 │ w2  w3 │ w4  w5 │ w6  w7 │
//	         ▲▲           ▲▲        ▲▲   ▲▲
//
// so that adding a key takes at most four atomic operations, not eight.
//
// Invariant: once Add has returned, Test is true for its key, for all goroutines, for
// ever. ErrorRate says how often Test is true for others.
//
// The odd case is two goroutines that add the same new key at the same time: both may
// be told that it was not there before.
//
// A Bloom may be used by many goroutines at once. It takes no locks. The zero Bloom is
// good for UnmarshalBinary only.
type Bloom struct {
	seed        uint64
	bitsPerPair int // bits that a key sets in each pair
	blocks      []block
}

// A block is one cache line: Go places large arrays at multiples of 64 bytes.
type block [2 * pairs]atomic.Uint64

const (
	pairs          = 4
	wordBits       = 64
	cacheLineBytes = 64
)

// NewBloom returns an empty filter. It panics if s is invalid; call s.Validate first
// if its numbers come from outside.
func NewBloom(s BloomConfig) *Bloom {
	if err := s.Validate(); err != nil {
		panic(err.Error() + " (NewBloom)")
	}
	n, perPair := s.blockCount(pairLayout, 1)
	return &Bloom{seed: seedOrRandom(s.Seed), bitsPerPair: perPair, blocks: make([]block, n)}
}

// ErrorRate returns the chance that Test is true for a key that was not added, after
// so many different keys were.
func (b *Bloom) ErrorRate(keys int64) float64 {
	return pairLayout.falsePositiveRate(float64(keys)/float64(len(b.blocks)), b.bitsPerPair)
}

// Bytes returns how much memory the bits take.
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

// Test reports whether key was added, or seems to have been.
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

// TestAndAdd adds key, and reports whether it had been added before, or seemed to
// have been.
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

// wordAndMask returns the word and the bits of pair i that belong to the hash h.
func (b *Bloom) wordAndMask(h uint64, i int) (word int, mask uint64) {
	x := h * oddMultipliers[i]
	word = i*2 + int(x>>63)
	for range b.bitsPerPair {
		x <<= 6
		mask |= 1 << (x >> 58)
	}
	return word, mask
}
