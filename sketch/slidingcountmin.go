package sketch

import (
	"math"
	"time"
)

// SlidingCountMin counts how often keys were added in the last window of time. It is a count-min
// sketch with two parts, one for the current and one for the previous window. The count of the
// previous window is weighted with the share of that window within the last window length, as in
// throttle.NewSlidingCounter:
//
//	    previous: 84          current: 36
//	├────────────────────────┼─────┬──────────────────┤
//	      |<---- window length --->|
//	          3/4 of it           now      84*3/4 + 36 = 99
//
// Invariant: a count is at least the weighted sum of what was added to the key. It is too high by
// more than Epsilon of what was added to all keys in both windows for at most Delta of the keys.
//
// Limitations: a time before the current window is treated as the beginning of that window, at
// which all of the previous window counts.
//
// A SlidingCountMin may be used by several goroutines at the same time. Each lock guards a part of
// the keys, so that most keys do not wait for each other.
type SlidingCountMin struct {
	seed     uint64
	windows  windows
	locks    stripes
	counters counterTable
}

// counterTable holds the lines of a sliding count-min sketch: one word for the number of the
// window, and fifteen words of counters. A key has four counters, one in each quarter of the line.
type counterTable struct {
	table
	bits   uint64 // bits of a counter: 16 or 32
	perRow uint64 // counters per quarter
}

const countWidth = 16

func newCounterTable(slots int, bits uint64) counterTable {
	return counterTable{newTable(slots, countWidth), bits, countersIn(bits)}
}

func countersIn(bits uint64) uint64 { return (countWidth - 1) * 64 / bits / rows }

// combinationsFor returns the number of combinations of counters that a key can have in a line.
func combinationsFor(bits uint64) float64 { return math.Pow(float64(countersIn(bits)), rows) }

// NewSlidingCountMin returns an empty sketch with windows of length per. p.Epsilon is a share of
// what is added in each window. NewSlidingCountMin panics if p is invalid or per is not positive.
func NewSlidingCountMin(p CountMinConfig, per time.Duration) *SlidingCountMin {
	err := p.Validate()
	if err == nil {
		err = validateWindow("sliding counts", per)
	}
	if err != nil {
		panic(err.Error() + " (NewSlidingCountMin)")
	}
	n := p.slots()
	locks := stripesFor(n)
	return &SlidingCountMin{
		seed: seedOrRandom(p.Seed), windows: windows{int64(per)}, locks: locks,
		counters: newCounterTable(locks.roundToStripes(n, p.Bytes > 0), 32),
	}
}

// slots returns the number of slots of two lines. The count of each of the two windows may exceed
// its bound, so each gets half of Delta.
func (p CountMinConfig) slots() int {
	if p.Bytes > 0 {
		return slotsIn(p.Bytes, countWidth)
	}
	return int(math.Ceil(1 / (p.epsilon() * maxMean(orDefaultErrorRate(p.Delta)/2, combinationsFor(32)))))
}

// Add adds n to the count of key at the time now and returns the new count. It adds nothing if n
// is not positive.
func (c *SlidingCountMin) Add(key string, n int64, now time.Time) (count int64) {
	h := hash(key, c.seed)
	lock := c.locks.lockFor(h)
	lock.Lock()
	defer lock.Unlock()
	m := c.instantOf(h, now)
	if n > 0 {
		c.counters.raiseTo(h, m.window, uint64(min(n, math.MaxUint32)))
	}
	return c.counters.sum(h, m, c.windows)
}

// Count returns the count of key, which is never too low.
func (c *SlidingCountMin) Count(key string, now time.Time) int64 {
	h := hash(key, c.seed)
	lock := c.locks.lockFor(h)
	lock.Lock()
	defer lock.Unlock()
	return c.counters.sum(h, c.instantOf(h, now), c.windows)
}

// Epsilon returns by how much a count may be too high, as a share of what was added to all keys in
// that one of the two windows in which more was added. In each window the count of at most a share
// of chance of the keys is too high by more.
func (c *SlidingCountMin) Epsilon(chance float64) float64 {
	return min(1/(maxMean(chance/2, combinationsFor(32))*float64(c.counters.slots)), 1)
}

// Bytes returns the memory of the counters in bytes.
func (c *SlidingCountMin) Bytes() int64 { return c.counters.bytes() }

func (c *SlidingCountMin) instantOf(h uint64, now time.Time) instant {
	return c.windows.at(sinceEpoch(now)).notBefore(c.counters.latestWindow(h))
}

func (c *counterTable) sum(h uint64, m instant, w windows) int64 {
	return int64(c.minimum(h, m.window)) + w.weightedCount(int64(c.minimum(h, m.window-1)), m.offset)
}

// minimum returns the count of h in window.
func (c *counterTable) minimum(h, window uint64) uint64 {
	l := c.lookup(h, window)
	if l == nil {
		return 0
	}
	lowest := c.maxCounter()
	for r := range uint64(rows) {
		lowest = min(lowest, c.get(l, c.index(h, r)))
	}
	return lowest
}

// raiseTo adds n to the count of h in window with a conservative update.
func (c *counterTable) raiseTo(h, window, n uint64) {
	target := min(c.minimum(h, window)+n, c.maxCounter())
	l := c.lineForWrite(h, window)
	for r := range uint64(rows) {
		i := c.index(h, r)
		c.put(l, i, max(c.get(l, i), target))
	}
}

// add adds n to all counters of h in window, so that subtract can reverse it. A counter that has
// reached its maximum stays there until the window is over.
func (c *counterTable) add(h, window, n uint64) {
	l := c.lineForWrite(h, window)
	for r := range uint64(rows) {
		i := c.index(h, r)
		c.put(l, i, min(c.get(l, i)+min(n, c.maxCounter()), c.maxCounter()))
	}
}

// subtract reverses an add of n to h in window. It does not change counters that have reached
// their maximum.
func (c *counterTable) subtract(h, window, n uint64) {
	l := c.lookup(h, window)
	if l == nil {
		return
	}
	for r := range uint64(rows) {
		i := c.index(h, r)
		if v := c.get(l, i); v < c.maxCounter() {
			c.put(l, i, v-min(n, v))
		}
	}
}

// maxCounter returns the maximum of a counter.
func (c *counterTable) maxCounter() uint64 { return 1<<c.bits - 1 }

// index returns the index of the counter of h in row r.
func (c *counterTable) index(h, r uint64) uint64 {
	x := h * oddMultipliers[3] << (r * 16)
	return r*c.perRow + (x>>48)*c.perRow>>16
}

func (c *counterTable) get(l []uint64, i uint64) uint64 {
	at := i * c.bits
	return l[1+at/64] >> (at % 64) & c.maxCounter()
}

func (c *counterTable) put(l []uint64, i, v uint64) {
	at := i * c.bits
	word := &l[1+at/64]
	*word = *word&^(c.maxCounter()<<(at%64)) | v<<(at%64)
}
