package sketch_test

import (
	"encoding/binary"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heed-go/heed/sketch"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// countErrors compares counts with what was added. It returns the mean error, and the share of
// keys whose error exceeds most.
func countErrors(t *testing.T, added map[int]int64, count func(key string) int64, most float64) (mean, over float64) {
	t.Helper()
	for k, n := range added {
		excess := count(key('k', k)) - n
		if excess < 0 {
			require.GreaterOrEqual(t, excess, int64(0), "a count is too low")
		}
		mean += float64(excess)
		if float64(excess) > most {
			over++
		}
	}
	return mean / float64(len(added)), over / float64(len(added))
}

func TestCountMin_errorIsWithinTheBound(t *testing.T) {
	if testing.Short() {
		t.Skip("only make test-long runs it")
	}
	for _, p := range []sketch.CountMinConfig{{}, {Epsilon: 0.001}, {Epsilon: 0.01, Delta: 0.1}, {Epsilon: 0.001, Delta: 1e-4}} {
		p.Seed = 5
		c := sketch.NewCountMin(p)
		added := map[int]int64{}
		draws := zipf(1, 200_000)
		for _, k := range draws {
			added[k]++
			c.Add(key('k', k), 1)
		}
		delta := p.Delta
		if delta == 0 {
			delta = 0.01
		}
		_, over := countErrors(t, added, c.Count, c.Epsilon(delta)*float64(len(draws)))
		require.LessOrEqual(t, over, delta, "%+v", p)
		require.LessOrEqual(t, c.Epsilon(delta), max(p.Epsilon, 0.0001)*1.001, "%+v", p)
	}
}

// TestCountMin_boundHoldsForTheWorstWeights adds the worst input that can be chosen without the
// seed: keys whose weight equals the permitted error, so that one of them per row exceeds it.
func TestCountMin_boundHoldsForTheWorstWeights(t *testing.T) {
	for _, delta := range []float64{0.1, 0.01, 0.001} {
		if testing.Short() && delta == 0.01 {
			continue
		}
		c := sketch.NewCountMin(sketch.CountMinConfig{Epsilon: 0.0001, Delta: delta, Seed: 9})
		const heavy, trials = 10_000, 200_000 // each has a ten-thousandth of the sum
		for i := range heavy {
			c.Add(key('h', i), 1000)
		}
		over := 0
		for i := range trials {
			if c.Count(key('x', i)) >= 1000 {
				over++
			}
		}
		share := float64(over) / trials
		require.LessOrEqual(t, share, delta)
		require.Greater(t, share, delta/10, "the bound is not far off")
	}
}

func TestCountMin_worstCases(t *testing.T) {
	c := sketch.NewCountMin(sketch.CountMinConfig{Bytes: 1, Seed: 1})
	require.Zero(t, c.Count("k"))
	require.Zero(t, c.Add("k", 0))
	require.Zero(t, c.Add("k", -5))
	require.EqualValues(t, 3, c.Add("k", 3))
	require.EqualValues(t, 5, c.Add("k", 2))
	require.Equal(t, int64(math.MaxUint32), c.Add("k", math.MaxInt64))
	require.Equal(t, int64(math.MaxUint32), c.Add("k", 1), "a counter stays at its end")
	require.EqualValues(t, 128, c.Bytes())
	require.InDelta(t, 1, c.Epsilon(1e-6), 0)
}

func TestCountMin_losesNothingOnConcurrentAdds(t *testing.T) {
	const keys = 64
	for _, bytes := range []int64{1, 1 << 10, 1 << 16} {
		c := sketch.NewCountMin(sketch.CountMinConfig{Bytes: bytes, Seed: 1})
		var added [keys]atomic.Int64
		concurrently(func(id int) {
			for i := range 20_000 {
				k := (i*7 + id*i) % keys
				n := int64(1 + i%3)
				before := added[k].Load()
				got := c.Add(key('k', k), n)
				added[k].Add(n)
				if got < before+n {
					assert.GreaterOrEqual(t, got, before+n)
				}
			}
		})
		for k := range keys {
			require.GreaterOrEqual(t, c.Count(key('k', k)), added[k].Load())
		}
	}
}

func TestCountMin_oneKeyIsExactOnConcurrentAdds(t *testing.T) {
	c := sketch.NewCountMin(sketch.CountMinConfig{Epsilon: 0.01})
	concurrently(func(int) {
		for range 10_000 {
			c.Add("k", 2)
		}
	})
	require.EqualValues(t, 160_000, c.Count("k"))
}

func TestSlidingCountMin_weighsTheWindowBefore(t *testing.T) {
	c := sketch.NewSlidingCountMin(sketch.CountMinConfig{Epsilon: 0.01, Seed: 1}, time.Hour)
	require.EqualValues(t, 84, c.Add("k", 84, noon.Add(10*time.Minute)))
	require.EqualValues(t, 84, c.Count("k", noon.Add(time.Hour)))
	require.EqualValues(t, 99, c.Add("k", 36, noon.Add(75*time.Minute)))
	require.EqualValues(t, 37, c.Count("k", noon.Add(2*time.Hour-1)), "1 of 84 e-12, rounded up, and 36")
	require.EqualValues(t, 36, c.Count("k", noon.Add(2*time.Hour)))
	require.EqualValues(t, 9, c.Count("k", noon.Add(165*time.Minute)))
	require.EqualValues(t, 0, c.Count("k", noon.Add(3*time.Hour)))
	require.EqualValues(t, 0, c.Add("k", 0, noon.Add(3*time.Hour)))
	require.EqualValues(t, 84+36, c.Count("k", noon), "an older reading is the beginning of the window")
	require.Equal(t, int64(math.MaxUint32), c.Add("k", math.MaxInt64, noon.Add(100*time.Hour)))
	require.Equal(t, int64(math.MaxUint32), c.Add("k", 1, noon.Add(100*time.Hour)), "a counter stays at its end")
}

func TestSlidingCountMin_errorIsWithinTheBound(t *testing.T) {
	c := sketch.NewSlidingCountMin(sketch.CountMinConfig{Epsilon: 0.001, Seed: 5}, time.Minute)
	draws := zipf(2, 100_000)
	added := map[int]int64{}
	for window := range 3 {
		for _, k := range draws {
			c.Add(key('k', k+window), 1, noon.Add(time.Duration(window)*time.Minute))
		}
	}
	for _, k := range draws {
		added[k+2]++ // all of the last window
		added[k+1]++ // and the first draws of the window before
	}
	at := noon.Add(2 * time.Minute)
	count := func(k string) int64 { return c.Count(k, at) }
	_, over := countErrors(t, added, count, 2*c.Epsilon(0.01)*float64(len(draws)))
	require.LessOrEqual(t, over, 0.01)
	require.LessOrEqual(t, c.Epsilon(0.01), 0.001)
}

func TestSlidingCountMin_concurrentAdds(t *testing.T) {
	c := sketch.NewSlidingCountMin(sketch.CountMinConfig{Bytes: 1 << 12, Seed: 1}, time.Minute)
	concurrently(func(int) {
		for i := range 10_000 {
			c.Add(key('k', i%50), 1, noon)
		}
	})
	for i := range 50 {
		require.GreaterOrEqual(t, c.Count(key('k', i), noon), int64(1600))
	}
}

func TestTopK_findsTheHeaviest(t *testing.T) {
	const counters = 200
	top := sketch.NewTopK(counters)
	added, draws := map[int]int64{}, zipf(4, 100_000)
	for _, k := range draws {
		added[k]++
		top.Add(key('k', k), 1)
	}
	most := int64(len(draws) / counters)
	found := map[string]bool{}
	hits := top.First(counters)
	for i, h := range hits {
		k := int(binary.LittleEndian.Uint64([]byte(h.Key)[8:]))
		require.GreaterOrEqual(t, h.Count, added[k])
		require.LessOrEqual(t, h.Count-h.MaxError, added[k])
		require.LessOrEqual(t, h.MaxError, most)
		require.True(t, i == 0 || h.Count <= hits[i-1].Count)
		found[h.Key] = true
	}
	for k, n := range added {
		require.True(t, n <= most || found[key('k', k)], "%d was added %d times", k, n)
		require.GreaterOrEqual(t, top.Count(key('k', k)), n)
	}
}

func TestTopK_takesOverTheLowestCount(t *testing.T) {
	top := sketch.NewTopK(3)
	top.Add("a", 9)
	top.Add("b", 4)
	require.EqualValues(t, 0, top.Count("d"), "a counter is free")
	require.EqualValues(t, 2, top.Add("d", 2))
	require.EqualValues(t, 2, top.Count("c"), "as much as it may have had")
	require.EqualValues(t, 2, top.Add("c", 0))
	require.EqualValues(t, 2, top.Add("c", -1))
	require.EqualValues(t, 9, top.Add("a", -1))
	require.EqualValues(t, 9, top.Add("a", 0))
	require.EqualValues(t, 3, top.Add("c", 1))
	require.Equal(t, []sketch.Item{{"a", 9, 0}, {"b", 4, 0}, {"c", 3, 2}}, top.First(10))
	require.Equal(t, []sketch.Item{{"a", 9, 0}}, top.First(1))
	require.Empty(t, top.First(-1))
	require.Positive(t, top.Add("a", math.MaxInt64))
	require.Positive(t, top.Add("a", math.MaxInt64), "no overflow")
}

func TestTopK_concurrentAdds(t *testing.T) {
	top := sketch.NewTopK(16)
	concurrently(func(id int) {
		for i := range 5000 {
			top.Add(key('k', i%32), 1)
			if i%100 == id {
				top.First(3)
			}
		}
	})
	sum := int64(0)
	for _, h := range top.First(16) {
		sum += h.Count
	}
	require.EqualValues(t, 40_000, sum, "counters change hands, and lose nothing")
}

func TestTopK_replacesTheOnlyKey(t *testing.T) {
	top := sketch.NewTopK(1)
	require.EqualValues(t, 1, top.Add("a", 1))
	require.EqualValues(t, 2, top.Add("b", 1))
	require.EqualValues(t, 3, top.Add("b", 1))
	require.Equal(t, []sketch.Item{{"b", 3, 1}}, top.First(2))
}
