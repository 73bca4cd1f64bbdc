package sketch

import (
	"math"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestSizes checks the sizes on which Bytes and the placement in cache lines depend.
func TestSizes(t *testing.T) {
	require.EqualValues(t, 64, unsafe.Sizeof(block{}))
	require.EqualValues(t, 128, unsafe.Sizeof(line{}))
	require.EqualValues(t, 64, unsafe.Sizeof(stripe{}))
}

// rowsOf returns the index of the counter of key in each row.
func rowsOf(c *CountMin, key string) (index [rows]int) {
	s, l := c.countersOf(key), &c.lines[0]
	for i := range l.cells {
		if s.cell == &l.cells[i] {
			index[0] = i
		}
	}
	for r, counter := range []*atomic.Uint32{s.a, s.b, s.c} {
		for i := range l.rows[r] {
			if counter == &l.rows[r][i] {
				index[r+1] = cells + r*countersPerRow + i
			}
		}
	}
	return index
}

// TestCountMin_updatesAreConservative compares a line with what the comment of CountMin says:
// an Add raises the counters of its key to the count plus n, and no others. Merge adds to all
// counters, and the next Add is conservative again.
func TestCountMin_updatesAreConservative(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, largest := range []int64{1, 5, 1 << 20} {
		p := CountMinConfig{Bytes: countMinLineBytes, Seed: 7}
		c, other := NewCountMin(p), NewCountMin(p)
		other.Add("merged", 3)
		var want [countersPerLine]uint32
		for i := range 2000 {
			if i%100 == 99 {
				require.NoError(t, c.Merge(other))
				for k, n := range other.lines[0].counts() {
					want[k] += n
				}
			}
			key, n := strconv.Itoa(r.IntN(100)), r.Int64N(largest+1)
			index, count := rowsOf(c, key), uint32(math.MaxUint32)
			for _, k := range index {
				count = min(count, want[k])
			}
			count += uint32(n)
			for _, k := range index {
				want[k] = max(want[k], count)
			}
			require.EqualValues(t, count, c.Add(key, n))
			require.EqualValues(t, count, c.Count(key))
			require.Equal(t, want, c.lines[0].counts())
		}
		for i := range c.lines[0].cells {
			require.Zero(t, c.lines[0].cells[i].Load()&writersMask, "no goroutine is inside")
		}
	}
}

// TestCounterTable_usesAllCounters checks that keys use all counters of each row of a line evenly,
// with counters of both sizes: Epsilon depends on it.
func TestCounterTable_usesAllCounters(t *testing.T) {
	const keys = 60_000
	for bits, perRow := range map[uint64]int{16: 15, 32: 7} {
		c := newCounterTable(1, bits)
		used := make([]int, rows*perRow)
		for i := range keys {
			h := hash(strconv.Itoa(i), 1)
			for r := range uint64(rows) {
				used[c.index(h, r)]++
			}
		}
		for r := range rows {
			sum := 0
			for index, n := range used[r*perRow : (r+1)*perRow] {
				sum += n
				require.InEpsilon(t, keys/perRow, n, 0.1, "counter %d of row %d, of %d bits", index, r, bits)
			}
			require.Equal(t, keys, sum)
		}
	}
}
