package sketch

import "time"

// SlidingBloom remembers the keys of the last window of time, and forgets them without
// ever being cleared: a Bloom filter in two panes, the current window and the one
// before.
//
//	        │   window 7   │   window 8   │
//	────────┴──────┴───────┴───────┴──────┴──▶ time
//	        |<-- both are asked -->|
//	                              now
//
// Invariant: a key is found for at least a window's length after it was added, and not
// for longer than two, but for false positives.
//
// The odd case is a now from before the current window: it counts as the beginning of
// that window. So a clock that steps back makes nobody forgotten.
//
// A SlidingBloom may be used by many goroutines at once. Those whose keys lie far from
// each other do not wait for each other.
type SlidingBloom struct {
	seed    uint64
	windows windows
	locks   stripes
	filter  bitTable
}

// bitTable are the blocks of a sliding Bloom filter: a word for the window, and seven
// in each of which a key has bitsPerWord bits.
type bitTable struct {
	table
	bitsPerWord int
}

const bitWidth = 8

// NewSlidingBloom returns an empty filter with windows of length per. Its size is that
// of one window: s.Keys come in each at most, and s.ErrorRate holds for both panes
// together. It panics if s is invalid or per is not positive.
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

// Add adds key as of now.
func (b *SlidingBloom) Add(key string, now time.Time) { b.TestAndAdd(key, now) }

// Test reports whether key was added in the current window or the one before.
func (b *SlidingBloom) Test(key string, now time.Time) bool {
	h := hash(key, b.seed)
	lock := b.locks.lockFor(h)
	lock.Lock()
	defer lock.Unlock()
	window := b.window(h, now)
	return b.filter.has(h, window) || b.filter.has(h, window-1)
}

// TestAndAdd adds key as of now, and reports whether it had been added before, in the
// current window or the one before. Of several goroutines that add the same new key
// one is told that it was not.
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

// ErrorRate returns the chance that Test is true for a key that was not added, if so
// many different keys were added in each of two windows.
func (b *SlidingBloom) ErrorRate(keys int64) float64 {
	return min(2*b.filter.rate(float64(keys)), 1)
}

// Bytes returns how much memory the bits take.
func (b *SlidingBloom) Bytes() int64 { return b.filter.bytes() }

func (b *SlidingBloom) window(h uint64, now time.Time) uint64 {
	return b.windows.at(sinceEpoch(now)).notBefore(b.filter.latestWindow(h)).window
}

// rate returns the chance of a false positive in one pane with so many keys.
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

// mask returns the bits of h in word i: one of four products has bits for two words.
func (b *bitTable) mask(h uint64, i int) (mask uint64) {
	x := h * oddMultipliers[i&3] << (i >> 2 * 32)
	for range b.bitsPerWord {
		mask |= 1 << (x >> 58)
		x <<= 6
	}
	return mask
}
