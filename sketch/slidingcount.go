package sketch

import (
	"math"
	"time"
)

// SlidingCountMin counts how often keys were added in the last window of time: a
// count-min sketch in two panes. Of the window before, it counts as large a part as
// that window has in the last window's length, as throttle.SlidingCounter does:
//
//	    before: 84            current: 36
//	├────────────────────────┼─────┬──────────────────┤
//	      |<---- window's length ->|
//	          3/4 of it           now      84*3/4 + 36 = 99
//
// Invariant: a count is at least that sum of what was added. It is too high by more
// than Epsilon of what was added to all keys in both windows for no more than Delta of
// the keys.
//
// The odd case is a now from before the current window, which counts as the beginning
// of that window: all of the window before is counted then.
//
// A SlidingCountMin may be used by many goroutines at once. Those whose keys lie far
// from each other do not wait for each other.
type SlidingCountMin struct {
	seed    uint64
	windows windows
	locks   stripes
	counts  countShelf
}

// countShelf are the lines of a sliding count-min sketch: a word for the window, and
// fifteen with counters. A key has four of them, one in each quarter of the line.
type countShelf struct {
	shelf
	bits   uint64 // of a counter: 16 or 32
	perRow uint64 // counters
}

const countWidth = 16

func newCountShelf(places int, bits uint64) countShelf {
	return countShelf{newShelf(places, countWidth), bits, perRow(bits)}
}

func perRow(bits uint64) uint64 { return (countWidth - 1) * 64 / bits / rows }

// ways is in how many ways a key's counters can lie in a line.
func ways(bits uint64) float64 { return math.Pow(float64(perRow(bits)), rows) }

// NewSlidingCountMin returns an empty sketch with windows of length per. p.Epsilon is a
// share of what is added in each window. It panics if p is invalid or per is not
// positive.
func NewSlidingCountMin(p Precision, per time.Duration) *SlidingCountMin {
	err := p.Validate()
	if err == nil {
		err = validPer("sliding counts", per)
	}
	if err != nil {
		panic(err.Error() + " (NewSlidingCountMin)")
	}
	n := p.places()
	locks := stripesFor(n)
	return &SlidingCountMin{
		seed: seedOr(p.Seed), windows: windows{int64(per)}, locks: locks,
		counts: newCountShelf(locks.divide(n, p.Bytes > 0), 32),
	}
}

// places returns how many places of two lines are needed. Each of them may fail.
func (p Precision) places() int {
	if p.Bytes > 0 {
		return placesIn(p.Bytes, countWidth)
	}
	return int(math.Ceil(1 / (p.epsilon() * largestMean(orDefault(p.Delta)/2, ways(32)))))
}

// Add adds n to key as of now and returns its count. It adds nothing if n is not
// positive.
func (c *SlidingCountMin) Add(key string, n int64, now time.Time) (count int64) {
	h := hash(key, c.seed)
	lock := c.locks.of(h)
	lock.Lock()
	defer lock.Unlock()
	m := c.moment(h, now)
	if n > 0 {
		c.counts.raise(h, m.window, uint64(min(n, math.MaxUint32)))
	}
	return c.counts.sum(h, m, c.windows)
}

// Count returns what was added to key, or more.
func (c *SlidingCountMin) Count(key string, now time.Time) int64 {
	h := hash(key, c.seed)
	lock := c.locks.of(h)
	lock.Lock()
	defer lock.Unlock()
	return c.counts.sum(h, c.moment(h, now), c.windows)
}

// Epsilon returns how much a count may be too high, as a share of all that was added in
// the window of the two in which more was: more than that in each window is it for at
// most a share of chance of the keys.
func (c *SlidingCountMin) Epsilon(chance float64) float64 {
	return min(1/(largestMean(chance/2, ways(32))*float64(c.counts.places)), 1)
}

// Bytes returns how much memory the counters take.
func (c *SlidingCountMin) Bytes() int64 { return c.counts.bytes() }

func (c *SlidingCountMin) moment(h uint64, now time.Time) moment {
	return c.windows.at(sinceEpoch(now)).after(c.counts.newest(h))
}

func (c *countShelf) sum(h uint64, m moment, w windows) int64 {
	return int64(c.least(h, m.window)) + w.weigh(int64(c.least(h, m.window-1)), m.into)
}

// least returns the count of h in window.
func (c *countShelf) least(h, window uint64) uint64 {
	l := c.held(h, window)
	if l == nil {
		return 0
	}
	least := c.most()
	for r := range uint64(rows) {
		least = min(least, c.get(l, c.index(h, r)))
	}
	return least
}

// raise adds n to the count of h in window, by as little as that needs.
func (c *countShelf) raise(h, window, n uint64) {
	target := min(c.least(h, window)+n, c.most())
	l := c.written(h, window)
	for r := range uint64(rows) {
		i := c.index(h, r)
		c.put(l, i, max(c.get(l, i), target))
	}
}

// add adds n to all counters of h in window. That can be undone by take. A counter at
// its end has lost count and stays there until the window is over.
func (c *countShelf) add(h, window, n uint64) {
	l := c.written(h, window)
	for r := range uint64(rows) {
		i := c.index(h, r)
		c.put(l, i, min(c.get(l, i)+min(n, c.most()), c.most()))
	}
}

// take takes back n that was added to h in window.
func (c *countShelf) take(h, window, n uint64) {
	l := c.held(h, window)
	if l == nil {
		return
	}
	for r := range uint64(rows) {
		i := c.index(h, r)
		if v := c.get(l, i); v < c.most() {
			c.put(l, i, v-min(n, v))
		}
	}
}

// most is where a counter ends.
func (c *countShelf) most() uint64 { return 1<<c.bits - 1 }

// index returns the counter of h in row r.
func (c *countShelf) index(h, r uint64) uint64 {
	x := h * odd[3] << (r * 16)
	return r*c.perRow + (x>>48)*c.perRow>>16
}

func (c *countShelf) get(l []uint64, i uint64) uint64 {
	at := i * c.bits
	return l[1+at/64] >> (at % 64) & c.most()
}

func (c *countShelf) put(l []uint64, i, v uint64) {
	at := i * c.bits
	word := &l[1+at/64]
	*word = *word&^(c.most()<<(at%64)) | v<<(at%64)
}
