package sketch

import (
	"math"
	"sync/atomic"
)

// CountMin counts how often keys were added, in a table that does not grow with their
// number. A count is never too low. It may be too high, since keys share counters.
//
// A key has four counters, one in each row of one line, and its count is the least of
// them: the one that was disturbed least (Cormode, Muthukrishnan: An Improved Data
// Stream Summary, J. Algorithms 55, 2005).
//
//	line   │ 4 cells │ row of 8 │ row of 8 │ row of 8 │     128 bytes
//	key:       5          9         6 ▲         8
//
// An update is conservative (Estan, Varghese: New Directions in Traffic Measurement
// and Accounting, SIGCOMM 2002): to add 2 to the key above makes its counters 8, 9, 8
// and 8, for its count was at most 6, and so a counter of 8 or more says nothing too
// low. Only what is needed is raised, which is why keys disturb each other little.
//
// All four counters lie beside each other, in two lines of the cache that processors
// fetch together, where the original has them in rows far apart. So keys that meet in
// one row meet in others more often, for which the table is made larger: see Epsilon.
//
// Invariant: Count(key) is at least what was added to key by calls of Add that have
// returned. It is more than that plus Epsilon(chance) times all that was added to all
// keys for a share of at most chance of the keys.
//
// The odd case is two goroutines that add to the same key at the same time. A
// conservative update of both would lose one of them: each would raise 6 to 8. The cells
// of the first row tell: they also count who is inside. Whoever enters while another is
// inside, or sees that another came while it read the counters, adds to all four of them,
// as the sketch without conservative updates does. That is never too little, and nobody
// waits: see TestCountMin_losesNothingOnConcurrentAdds.
//
// A counter ends at 4294967295 and stays there. A CountMin may be used by many
// goroutines at once. It takes no locks. The zero CountMin is good for UnmarshalBinary
// only.
type CountMin struct {
	seed  uint64
	lines []line
}

type line struct {
	cells [cells]atomic.Uint64 // the first row: the upper half counts, the lower says how many are inside
	rows  [rows - 1][countersPerRow]atomic.Uint32
}

const (
	rows              = 4
	cells             = 4
	countersPerRow    = 8   // counters in each row but the first
	countMinLineBytes = 128 // of a line

	writersMask = 1<<32 - 1
	maxCounter  = math.MaxUint32 // where a counter ends
)

// A keyCounters is where the counters of a key are.
type keyCounters struct {
	cell    *atomic.Uint64
	a, b, c *atomic.Uint32
}

// NewCountMin returns an empty sketch. It panics if p is invalid; call p.Validate
// first if its numbers come from outside.
func NewCountMin(p CountMinConfig) *CountMin {
	if err := p.Validate(); err != nil {
		panic(err.Error() + " (NewCountMin)")
	}
	return &CountMin{seed: seedOrRandom(p.Seed), lines: make([]line, p.lines())}
}

// Add adds n to key and returns its count. It adds nothing if n is not positive.
func (c *CountMin) Add(key string, n int64) (count int64) {
	s := c.countersOf(key)
	if n <= 0 {
		return int64(s.minimum())
	}
	return int64(s.add(uint32(min(n, maxCounter))))
}

// Count returns what was added to key, or more.
func (c *CountMin) Count(key string) int64 {
	s := c.countersOf(key)
	return int64(s.minimum())
}

// Bytes returns how much memory the counters take.
func (c *CountMin) Bytes() int64 { return int64(len(c.lines)) * countMinLineBytes }

// Epsilon returns how much a count may be too high, as a share of all that was added:
// more than that is it for at most a share of chance of the keys, whatever was added.
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

// add adds n to the count and returns it.
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

// addToAll is add for one who was not alone in the cell. It makes the cell's count
// differ, as long as that has not ended, so that whoever was there first sees it.
func (s keyCounters) addToAll(n uint32) uint32 {
	increase(s.a, n)
	increase(s.b, n)
	increase(s.c, n)
	exitCell(s.cell, s.cell.Load(), n)
	return s.minimum()
}

// raiseTo makes a counter that was seen as old at least target. If others have increased
// it since, it is increased by as much as it would have been.
func raiseTo(c *atomic.Uint32, old, target uint32) {
	if old < target && !c.CompareAndSwap(old, target) {
		increase(c, target-old)
	}
}

// increase adds n to c as far as it goes.
func increase(c *atomic.Uint32, n uint32) {
	for {
		old := c.Load()
		if c.CompareAndSwap(old, saturatingAdd(old, n)) {
			return
		}
	}
}

// exitCell adds n to the count of a cell as far as it goes, and is one less inside; old is
// what the cell is likely to hold.
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
