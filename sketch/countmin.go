package sketch

import (
	"math"
	"sync/atomic"
)

// CountMin counts how often keys were added, in a table whose size does not depend on the number
// of keys. A count is never too low. It may be too high, because keys share counters.
//
// A key has four counters, one in each row of one line, and its count is the smallest of them: the
// one to which other keys have added least (Cormode, Muthukrishnan: An Improved Data Stream
// Summary, J. Algorithms 55, 2005).
//
//	line   │ 4 cells │ row of 8 │ row of 8 │ row of 8 │     128 bytes
//	key:       5          9          6          8
//
// Updates are conservative (Estan, Varghese: New Directions in Traffic Measurement and Accounting,
// SIGCOMM 2002): the count of the key above is at most 5, so adding 2 requires that no counter is
// below 7. The counters become 7, 9, 7 and 8. Counters are raised only as far as necessary, so
// keys affect each other little.
//
// All four counters of a key are in two adjacent cache lines, which processors fetch together; in
// the original algorithm the rows are far apart. Keys that share one counter therefore share
// others more often, and the table is larger to compensate: see Epsilon.
//
// Invariant: Count(key) is at least the sum of what calls of Add that have returned added to key.
// It exceeds that sum by more than Epsilon(chance) times the sum for all keys for at most a share
// of chance of the keys.
//
// Concurrency: if two goroutines add 2 to the same key at the same time, conservative updates of
// both would lose one of them, because each would raise 5 to 7. The cells of the first row
// therefore also count the goroutines that are updating. A goroutine that enters while another one
// is inside, or that notices that another one has entered while it read the counters, adds to all
// four counters, as a sketch without conservative updates does. The result is never too low, and
// no goroutine waits: see TestCountMin_losesNothingOnConcurrentAdds.
//
// A counter stops at 4294967295. A CountMin may be used by several goroutines at the same time. It
// takes no locks. The zero CountMin can only be used for UnmarshalBinary.
type CountMin struct {
	seed  uint64
	lines []line
}

type line struct {
	// cells is the first row. The upper half of a cell is the counter, the lower half is the
	// number of goroutines that are updating it.
	cells [cells]atomic.Uint64
	rows  [rows - 1][countersPerRow]atomic.Uint32
}

const (
	rows              = 4
	cells             = 4
	countersPerRow    = 8   // counters in each row except the first
	countMinLineBytes = 128 // size of a line

	writersMask = 1<<32 - 1
	maxCounter  = math.MaxUint32 // counters stop here
)

// A keyCounters holds the four counters of a key.
type keyCounters struct {
	cell    *atomic.Uint64
	a, b, c *atomic.Uint32
}

// NewCountMin returns an empty sketch. It panics if p is invalid; call p.Validate first if its
// numbers come from configuration.
func NewCountMin(p CountMinConfig) *CountMin {
	if err := p.Validate(); err != nil {
		panic(err.Error() + " (NewCountMin)")
	}
	return &CountMin{seed: seedOrRandom(p.Seed), lines: make([]line, p.lines())}
}

// Add adds n to the count of key and returns the new count. It adds nothing if n is not positive.
func (c *CountMin) Add(key string, n int64) (count int64) {
	return int64(c.countersOf(key).add(uint32(min(max(n, 0), maxCounter))))
}

// Count returns the count of key, which is never too low.
func (c *CountMin) Count(key string) int64 {
	return int64(c.countersOf(key).minimum())
}

// Bytes returns the memory of the counters in bytes.
func (c *CountMin) Bytes() int64 { return int64(len(c.lines)) * countMinLineBytes }

// Epsilon returns by how much a count may be too high, as a share of the sum for all keys. For at
// most a share of chance of the keys the count is too high by more, whatever was added.
func (c *CountMin) Epsilon(chance float64) float64 {
	return min(1/(maxMean(chance, combinations)*float64(len(c.lines))), 1)
}

func (c *CountMin) countersOf(key string) keyCounters {
	h := hash(key, c.seed)
	l := &c.lines[fastRange(h, len(c.lines))]
	x := h * oddMultipliers[0]
	return keyCounters{&l.cells[x>>62], &l.rows[0][x>>59%countersPerRow], &l.rows[1][x>>56%countersPerRow], &l.rows[2][x>>53%countersPerRow]}
}

func (s keyCounters) minimum() uint32 {
	return min(uint32(s.cell.Load()>>32), s.a.Load(), s.b.Load(), s.c.Load())
}

// add adds n to the count and returns the new count.
func (s keyCounters) add(n uint32) uint32 {
	cell := s.cell.Add(1)
	first, a, b, c := uint32(cell>>32), s.a.Load(), s.b.Load(), s.c.Load()
	if cell&writersMask != 1 || first == maxCounter || s.cell.Load() != cell {
		return s.addToAll(n)
	}
	target := saturatingAdd(min(first, a, b, c), n)
	raiseTo(s.a, a, target)
	raiseTo(s.b, b, target)
	raiseTo(s.c, c, target)
	exitCell(s.cell, cell, max(first, target)-first)
	return target
}

// addToAll adds n to all counters. It is used by goroutines that are not alone in the cell. It
// changes the cell's counter (unless that has reached maxCounter), so that the goroutine that
// entered first notices it.
func (s keyCounters) addToAll(n uint32) uint32 {
	increase(s.a, n)
	increase(s.b, n)
	increase(s.c, n)
	exitCell(s.cell, s.cell.Load(), n)
	return s.minimum()
}

// raiseTo raises a counter whose value was old to at least target. If other goroutines have
// changed the counter since, it adds the difference.
func raiseTo(c *atomic.Uint32, old, target uint32) {
	if old < target && !c.CompareAndSwap(old, target) {
		increase(c, target-old)
	}
}

// increase adds n to c, up to maxCounter.
func increase(c *atomic.Uint32, n uint32) {
	for {
		old := c.Load()
		if c.CompareAndSwap(old, saturatingAdd(old, n)) {
			return
		}
	}
}

// exitCell adds n to the counter of a cell, up to maxCounter, and decrements the number of
// goroutines inside. old is the expected value of the cell.
func exitCell(c *atomic.Uint64, old uint64, n uint32) {
	for {
		count := saturatingAdd(uint32(old>>32), n)
		if c.CompareAndSwap(old, uint64(count)<<32|old&writersMask-1) {
			return
		}
		old = c.Load()
	}
}

func saturatingAdd(a, b uint32) uint32 {
	if s := a + b; s >= a {
		return s
	}
	return math.MaxUint32
}
