package sketch_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// key returns the i-th key of a kind, of 16 bytes. Keys of different kinds differ.
func key(kind byte, i int) string {
	var b [16]byte
	b[0] = kind
	binary.LittleEndian.PutUint64(b[8:], uint64(i))
	return string(b[:])
}

// concurrently runs f in eight goroutines.
func concurrently(f func(id int)) {
	var all sync.WaitGroup
	for id := range 8 {
		all.Go(func() { f(id) })
	}
	all.Wait()
}

func TestHotPaths_allocateNothing(t *testing.T) {
	ctx := t.Context()
	bloom := sketch.NewBloom(sketch.BloomConfig{Keys: 1000})
	counts := sketch.NewCountMin(sketch.CountMinConfig{Epsilon: 0.01})
	recent := sketch.NewSlidingBloom(sketch.BloomConfig{Keys: 1000}, time.Minute)
	rates := sketch.NewSlidingCountMin(sketch.CountMinConfig{Epsilon: 0.01}, time.Minute)
	top := sketch.NewTopK(10)
	var limiter throttle.Limiter = sketch.NewLimiter(sketch.LimiterConfig{Limit: throttle.PerMinute(1 << 14), Clients: 1000})
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = key('k', i)
	}
	top.Add(keys[0], 1)
	next := 0
	for name, f := range map[string]func(key string){
		"Bloom.Add":                    func(k string) { bloom.Add(k) },
		"Bloom.Test":                   func(k string) { bloom.Test(k) },
		"Bloom.TestAndAdd":             func(k string) { bloom.TestAndAdd(k) },
		"CountMin.Add":                 func(k string) { counts.Add(k, 1) },
		"CountMin.Count":               func(k string) { counts.Count(k) },
		"SlidingBloom.TestAndAdd":      func(k string) { recent.TestAndAdd(k, noon) },
		"SlidingBloom.Test":            func(k string) { recent.Test(k, noon) },
		"SlidingCountMin.Add":          func(k string) { rates.Add(k, 1, noon) },
		"SlidingCountMin.Count":        func(k string) { rates.Count(k, noon) },
		"Top.Add of a key that it has": func(string) { top.Add(keys[0], 1) },
		"Limiter.Reserve, Observe and Cancel": func(k string) {
			c := throttle.Claim{Key: k, Cost: 3}
			d, _ := limiter.Reserve(ctx, c)
			limiter.Report(ctx, c, d, throttle.Feedback{Cost: 2})
			limiter.Report(ctx, c, d, throttle.Feedback{Now: c.Now, State: throttle.Unused})
		},
	} {
		require.Zero(t, testing.AllocsPerRun(100, func() { next++; f(keys[next%len(keys)]) }), name)
	}
}

func TestConstructors_panicOnWhatCannotWork(t *testing.T) {
	withLimiter := func(change func(*sketch.LimiterConfig)) func() {
		c := sketch.LimiterConfig{Limit: throttle.PerSecond(1), Clients: 1}
		change(&c)
		return func() { sketch.NewLimiter(c) }
	}
	for want, f := range map[string]func(){
		"Keys is 0":                        func() { sketch.NewBloom(sketch.BloomConfig{}) },
		"Keys is -1":                       func() { sketch.NewSlidingBloom(sketch.BloomConfig{Keys: -1}, time.Second) },
		"Bytes is -1":                      func() { sketch.NewBloom(sketch.BloomConfig{Keys: 1, Bytes: -1}) },
		"ErrorRate is 1:":                  func() { sketch.NewBloom(sketch.BloomConfig{Keys: 1, ErrorRate: 1}) },
		"ErrorRate is 1e-10":               func() { sketch.NewBloom(sketch.BloomConfig{Keys: 1, ErrorRate: 1e-10}) },
		"keys need more than":              func() { sketch.NewBloom(sketch.BloomConfig{Keys: 1 << 60}) },
		"sliding filter: Per is 0s":        func() { sketch.NewSlidingBloom(sketch.BloomConfig{Keys: 1}, 0) },
		"sliding counts: Per is -1s":       func() { sketch.NewSlidingCountMin(sketch.CountMinConfig{}, -time.Second) },
		"Epsilon is 2":                     func() { sketch.NewCountMin(sketch.CountMinConfig{Epsilon: 2}) },
		"Delta is -1":                      func() { sketch.NewCountMin(sketch.CountMinConfig{Delta: -1}) },
		"an Epsilon of 1e-12 needs more":   func() { sketch.NewSlidingCountMin(sketch.CountMinConfig{Epsilon: 1e-12}, 1) },
		"CountMinConfig: Bytes is -5":      func() { sketch.NewCountMin(sketch.CountMinConfig{Bytes: -5}) },
		"NewTopK: it needs at least one":   func() { sketch.NewTopK(0) },
		"Clients is 0":                     withLimiter(func(c *sketch.LimiterConfig) { c.Clients = 0 }),
		"Returning is 2":                   withLimiter(func(c *sketch.LimiterConfig) { c.Returning = 2 }),
		"Burst is 2":                       withLimiter(func(c *sketch.LimiterConfig) { c.Limit.Burst = 2 }),
		"Count is 0":                       withLimiter(func(c *sketch.LimiterConfig) { c.Limit.Count = 0 }),
		"Count is 1073741825":              withLimiter(func(c *sketch.LimiterConfig) { c.Limit.Count = 1<<30 + 1 }),
		"LimiterConfig: ErrorRate is 3":    withLimiter(func(c *sketch.LimiterConfig) { c.ErrorRate = 3 }),
		"LimiterConfig \"\": Bytes is -1":  withLimiter(func(c *sketch.LimiterConfig) { c.Bytes = -1 }),
		"it needs more memory than there":  withLimiter(func(c *sketch.LimiterConfig) { c.Clients = 1 << 60 }),
		"needs more memory than there can": withLimiter(func(c *sketch.LimiterConfig) { c.Clients = math.MaxInt64 }),
	} {
		require.Contains(t, fmt.Sprint(panicOf(f)), want)
	}
}

func panicOf(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

// TestSeeds_differ checks that each sketch without a Seed has a random one.
func TestSeeds_differ(t *testing.T) {
	a, b := sketch.NewBloom(sketch.BloomConfig{Keys: 100}), sketch.NewBloom(sketch.BloomConfig{Keys: 100})
	require.ErrorIs(t, a.Merge(b), sketch.ErrMerge)
}

// zipf returns n draws of keys, few of which are frequent.
func zipf(seed uint64, n int) []int {
	z := rand.NewZipf(rand.New(rand.NewPCG(seed, 3)), 1.1, 1, 1<<20)
	draws := make([]int, n)
	for i := range draws {
		draws[i] = int(z.Uint64())
	}
	return draws
}
