package sketch_test

import (
	"fmt"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heed-go/heed/sketch"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// falsePositives returns for how many of n keys test is true.
func falsePositives(n int, test func(string) bool) (found int) {
	for i := range n {
		if test(key('x', i)) {
			found++
		}
	}
	return found
}

// requireNear requires that the number of successes in n trials is within five standard deviations
// of the mean for the probability chance.
func requireNear(t *testing.T, chance float64, n, successes int, what string) {
	t.Helper()
	require.InDelta(t, chance*float64(n), successes, 5*math.Sqrt(chance*float64(n))+3, what)
}

func TestBloom_errorRateMatchesTheory(t *testing.T) {
	const trials = 200_000
	for _, tt := range []struct {
		keys int64
		rate float64
	}{{1, 0.01}, {100, 0.01}, {10_000, 0.5}, {10_000, 0.1}, {50_000, 0.01}, {50_000, 0.001}, {20_000, 1e-5}} {
		if testing.Short() && (tt.rate == 0.5 || tt.rate == 0.001) {
			continue
		}
		what := fmt.Sprintf("%+v", tt)
		b := sketch.NewBloom(sketch.BloomConfig{Keys: tt.keys, ErrorRate: tt.rate, Seed: 7})
		for i := range int(tt.keys) {
			b.Add(key('k', i))
		}
		require.LessOrEqual(t, b.ErrorRate(tt.keys), tt.rate, what)
		found := falsePositives(trials, b.Test)
		if tt.keys < 1000 { // with so few blocks the load of one filter may differ much from the mean
			require.LessOrEqual(t, found, int(3*tt.rate*trials), what)
			continue
		}
		requireNear(t, b.ErrorRate(tt.keys), trials, found, what)
	}
}

func TestBloom_needsNoMoreThanElevenBits(t *testing.T) {
	const keys = 1_000_000
	b := sketch.NewBloom(sketch.BloomConfig{Keys: keys, ErrorRate: 0.01})
	require.Less(t, float64(b.Bytes()*8)/keys, 10.5)
	require.Less(t, b.ErrorRate(keys), 0.01)

	b = sketch.NewBloom(sketch.BloomConfig{Keys: keys, Bytes: 11 * keys / 8})
	require.LessOrEqual(t, b.Bytes(), int64(11*keys/8))
	require.Less(t, b.ErrorRate(keys), 0.0075)
}

func TestBloom_forgetsNone(t *testing.T) {
	for _, rate := range []float64{0.3, 0.01, 1e-4, 1e-6} {
		b := sketch.NewBloom(sketch.BloomConfig{Keys: 1000, ErrorRate: rate})
		for i := range 20_000 { // many more than configured
			b.Add(key('k', i))
		}
		for i := range 20_000 {
			if !b.Test(key('k', i)) || !b.TestAndAdd(key('k', i)) {
				require.Fail(t, "the filter has forgotten a key", "rate %v, key %d", rate, i)
			}
		}
	}
	require.InDelta(t, 1, sketch.NewBloom(sketch.BloomConfig{Keys: 1}).ErrorRate(1e6), 1e-9)
	require.InDelta(t, 1, sketch.NewSlidingBloom(sketch.BloomConfig{Keys: 1}, time.Minute).ErrorRate(1e6), 1e-9)
}

func TestBloom_concurrentAdds(t *testing.T) {
	b := sketch.NewBloom(sketch.BloomConfig{Keys: 18_000, ErrorRate: 1e-9, Seed: 1})
	var fresh atomic.Int64
	concurrently(func(id int) {
		for i := range 2000 {
			own, shared := key(byte(id), i), key('s', i)
			if !b.TestAndAdd(own) {
				fresh.Add(1)
			}
			b.Add(shared)
			assert.True(t, b.Test(own) && b.Test(shared))
		}
	})
	require.EqualValues(t, 16000, fresh.Load())
	require.Less(t, falsePositives(10_000, b.Test), 5)
}

func TestSlidingBloom_remembersForOneWindowToTwo(t *testing.T) {
	b := sketch.NewSlidingBloom(sketch.BloomConfig{Keys: 100, Seed: 1}, time.Minute)
	for _, into := range []time.Duration{0, 1, 30 * time.Second, time.Minute - 1} {
		added, k := noon.Add(into), into.String()
		require.False(t, b.TestAndAdd(k, added))
		for _, later := range []time.Duration{0, time.Second, time.Minute} {
			require.True(t, b.Test(k, added.Add(later)), "%v after %v", later, into)
		}
		require.False(t, b.Test(k, added.Add(2*time.Minute)), "2m after %v", into)
	}
}

func TestSlidingBloom_isKeptAlive(t *testing.T) {
	b := sketch.NewSlidingBloom(sketch.BloomConfig{Keys: 100, Seed: 1}, time.Minute)
	for i := range 100 {
		require.Equal(t, i > 0, b.TestAndAdd("k", noon.Add(time.Duration(i)*time.Minute)))
	}
}

func TestSlidingBloom_clockSteppingBackForgetsNoKey(t *testing.T) {
	b := sketch.NewSlidingBloom(sketch.BloomConfig{Keys: 100, Seed: 1}, time.Minute)
	b.Add("k", noon)
	for _, back := range []time.Duration{1, time.Minute, time.Hour, 200 * 365 * 24 * time.Hour} {
		require.True(t, b.Test("k", noon.Add(-back)))
		require.True(t, b.TestAndAdd("k", noon.Add(-back)))
	}
	require.True(t, b.Test("k", time.Time{}), "older than can be counted")
	require.False(t, b.Test("k", noon.Add(2*time.Minute)), "older readings do not prolong")
}

func TestSlidingBloom_errorRateMatchesTheory(t *testing.T) {
	const keys, trials = 20_000, 100_000
	for _, rate := range []float64{0.1, 0.01, 0.0001} {
		if testing.Short() && rate == 0.01 {
			continue
		}
		b := sketch.NewSlidingBloom(sketch.BloomConfig{Keys: keys, ErrorRate: rate, Seed: 3}, time.Minute)
		for window := range 5 { // keys of windows before the previous one do not count
			for i := range keys {
				b.Add(key(byte(window), i), noon.Add(time.Duration(window)*time.Minute))
			}
		}
		now := noon.Add(4 * time.Minute)
		found := falsePositives(trials, func(k string) bool { return b.Test(k, now) })
		require.LessOrEqual(t, b.ErrorRate(keys), rate)
		requireNear(t, b.ErrorRate(keys)*(1-b.ErrorRate(keys)/4), trials, found, fmt.Sprint(rate))
	}
}

func TestSlidingBloom_concurrentAdds(t *testing.T) {
	b := sketch.NewSlidingBloom(sketch.BloomConfig{Keys: 2000, ErrorRate: 1e-6, Seed: 1}, time.Minute)
	var fresh atomic.Int64
	concurrently(func(id int) {
		for i := range 2000 {
			if now := noon.Add(time.Duration(i) * 10 * time.Millisecond); !b.TestAndAdd(key('s', i), now) {
				fresh.Add(1)
			}
		}
	})
	require.EqualValues(t, 2000, fresh.Load(), "one goroutine finds each key new")
}
