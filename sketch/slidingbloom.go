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
	bits    bitShelf
}

// bitShelf are the blocks of a sliding Bloom filter: a word for the window, and seven
// in each of which a key has perWord bits.
type bitShelf struct {
	shelf
	perWord int
}

const bitWidth = 8

// NewSlidingBloom returns an empty filter with windows of length per. Its size is that
// of one window: s.Keys come in each at most, and s.ErrorRate holds for both panes
// together. It panics if s is invalid or per is not positive.
func NewSlidingBloom(s Size, per time.Duration) *SlidingBloom {
	err := s.Validate()
	if err == nil {
		err = validPer("sliding filter", per)
	}
	if err != nil {
		panic(err.Error() + " (NewSlidingBloom)")
	}
	n, perWord := s.blocks(single, 2)
	locks := stripesFor(n)
	return &SlidingBloom{
		seed: seedOr(s.Seed), windows: windows{int64(per)}, locks: locks,
		bits: bitShelf{newShelf(locks.divide(n, s.Bytes > 0), bitWidth), perWord},
	}
}

// Add adds key as of now.
func (b *SlidingBloom) Add(key string, now time.Time) { b.TestAndAdd(key, now) }

// Test reports whether key was added in the current window or the one before.
func (b *SlidingBloom) Test(key string, now time.Time) bool {
	h := hash(key, b.seed)
	lock := b.locks.of(h)
	lock.Lock()
	defer lock.Unlock()
	window := b.window(h, now)
	return b.bits.has(h, window) || b.bits.has(h, window-1)
}

// TestAndAdd adds key as of now, and reports whether it had been added before, in the
// current window or the one before. Of several goroutines that add the same new key
// one is told that it was not.
func (b *SlidingBloom) TestAndAdd(key string, now time.Time) bool {
	h := hash(key, b.seed)
	lock := b.locks.of(h)
	lock.Lock()
	defer lock.Unlock()
	window := b.window(h, now)
	if b.bits.has(h, window) {
		return true
	}
	b.bits.set(h, window)
	return b.bits.has(h, window-1)
}

// ErrorRate returns the chance that Test is true for a key that was not added, if so
// many different keys were added in each of two windows.
func (b *SlidingBloom) ErrorRate(keys int64) float64 {
	return min(2*b.bits.rate(float64(keys)), 1)
}

// Bytes returns how much memory the bits take.
func (b *SlidingBloom) Bytes() int64 { return b.bits.bytes() }

func (b *SlidingBloom) window(h uint64, now time.Time) uint64 {
	return b.windows.at(sinceEpoch(now)).after(b.bits.newest(h)).window
}

// rate returns the chance of a false positive in one pane with so many keys.
func (b *bitShelf) rate(keys float64) float64 {
	return single.rate(keys/float64(b.places), b.perWord)
}

// has reports whether the bits of h are set in window.
func (b *bitShelf) has(h, window uint64) bool {
	l := b.held(h, window)
	if l == nil {
		return false
	}
	var missing uint64
	for i := range single.groups {
		missing |= b.mask(h, i) &^ l[1+i]
	}
	return missing == 0
}

// set sets the bits of h in window.
func (b *bitShelf) set(h, window uint64) {
	l := b.written(h, window)
	for i := range single.groups {
		l[1+i] |= b.mask(h, i)
	}
}

// mask returns the bits of h in word i: one of four products has bits for two words.
func (b *bitShelf) mask(h uint64, i int) (mask uint64) {
	x := h * odd[i&3] << (i >> 2 * 32)
	for range b.perWord {
		mask |= 1 << (x >> 58)
		x <<= 6
	}
	return mask
}
