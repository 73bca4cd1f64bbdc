package sketch

import "time"

// SlidingBloom remembers the keys of the last window of time. It is a Bloom filter with two parts,
// one for the current and one for the previous window, and needs no clearing.
//
//	        │   window 7   │   window 8   │
//	────────┴──────┴───────┴───────┴──────┴──▶ time
//	        |<-- Test reads both ->|
//	                              now
//
// Invariant: Test is true for a key for at least the length of a window after it was added and,
// except for false positives, for at most the length of two windows.
//
// Limitations: a time before the current window is treated as the beginning of that window, so
// that a clock that steps back makes the filter forget nothing.
//
// A SlidingBloom may be used by several goroutines at the same time. Each lock guards a part of
// the keys, so that most keys do not wait for each other.
type SlidingBloom struct {
	seed    uint64
	windows windows
	locks   stripes
	filter  bitTable
}

// bitTable holds the blocks of a SlidingBloom: one word for the number of the window, and seven
// words in each of which a key sets bitsPerWord bits.
type bitTable struct {
	table
	bitsPerWord int
}

const bitWidth = 8

// NewSlidingBloom returns an empty filter with windows of length per. s.Keys is the maximum number
// of keys in each window, and s.ErrorRate is the error rate of both windows together.
// NewSlidingBloom panics if s is invalid or per is not positive.
func NewSlidingBloom(s BloomConfig, per time.Duration) *SlidingBloom {
	err := s.Validate()
	if err == nil {
		err = validateWindow("sliding filter", per)
	}
	if err != nil {
		panic(err.Error() + " (NewSlidingBloom)")
	}
	n, perWord := s.blockCount(wordLayout, 2)
	locks := stripesFor(n)
	return &SlidingBloom{
		seed: seedOrRandom(s.Seed), windows: windows{int64(per)}, locks: locks,
		filter: bitTable{newTable(locks.roundToStripes(n, s.Bytes > 0), bitWidth), perWord},
	}
}

// Add adds key at the time now.
func (b *SlidingBloom) Add(key string, now time.Time) { b.TestAndAdd(key, now) }

// Test reports whether key was added in the current or the previous window.
func (b *SlidingBloom) Test(key string, now time.Time) bool {
	h := hash(key, b.seed)
	lock := b.locks.lockFor(h)
	lock.Lock()
	defer lock.Unlock()
	window := b.window(h, now)
	return b.filter.has(h, window) || b.filter.has(h, window-1)
}

// TestAndAdd adds key at the time now and reports whether it had been added before, in the current
// or the previous window. If several goroutines add the same new key, it returns false for exactly
// one of them, except for false positives.
func (b *SlidingBloom) TestAndAdd(key string, now time.Time) bool {
	h := hash(key, b.seed)
	lock := b.locks.lockFor(h)
	lock.Lock()
	defer lock.Unlock()
	window := b.window(h, now)
	if b.filter.has(h, window) {
		return true
	}
	b.filter.set(h, window)
	return b.filter.has(h, window-1)
}

// ErrorRate returns the probability that Test is true for a key that was not added, if keys
// different keys were added in each of the two windows.
func (b *SlidingBloom) ErrorRate(keys int64) float64 {
	return min(2*b.filter.rate(float64(keys)), 1)
}

// Bytes returns the memory of the bits in bytes.
func (b *SlidingBloom) Bytes() int64 { return b.filter.bytes() }

func (b *SlidingBloom) window(h uint64, now time.Time) uint64 {
	return b.windows.at(sinceEpoch(now)).notBefore(b.filter.latestWindow(h)).window
}

// rate returns the probability of a false positive in one window with the given number of keys.
func (b *bitTable) rate(keys float64) float64 {
	return wordLayout.falsePositiveRate(keys/float64(b.slots), b.bitsPerWord)
}

// has reports whether the bits of h are set in window.
func (b *bitTable) has(h, window uint64) bool {
	l := b.lookup(h, window)
	if l == nil {
		return false
	}
	var missing uint64
	for i := range wordLayout.groups {
		missing |= b.mask(h, i) &^ l[1+i]
	}
	return missing == 0
}

// set sets the bits of h in window.
func (b *bitTable) set(h, window uint64) {
	l := b.lineForWrite(h, window)
	for i := range wordLayout.groups {
		l[1+i] |= b.mask(h, i)
	}
}

// mask returns the bits of h in word i. Each of the four products supplies the bits of up to two
// words.
func (b *bitTable) mask(h uint64, i int) (mask uint64) {
	x := h * oddMultipliers[i&3] << (i >> 2 * 32)
	for range b.bitsPerWord {
		mask |= 1 << (x >> 58)
		x <<= 6
	}
	return mask
}
