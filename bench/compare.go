package bench

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Result holds the figures of one pair. Heed and Theirs are medians in nanoseconds per
// operation; the ratios are of samples of the same round.
type Result struct {
	Pair                      Pair
	Procs                     int // goroutines, and GOMAXPROCS
	Heed, Theirs              float64
	Ratio, MinRatio, MaxRatio float64
	HeedAllocs, PeerAllocs    uint64 // per operation
	HeedBytes, PeerBytes      uint64 // bytes allocated per operation
}

// Compare measures every pair with each number of goroutines. Each round measures all of
// them, so that other load on the machine affects them equally. The order of the two sides
// alternates between rounds.
func Compare(pairs []Pair, procs []int, rounds int, perSample time.Duration) ([]Result, error) {
	runs := make([]*run, 0, len(pairs)*len(procs))
	for _, n := range procs {
		for _, p := range pairs {
			runs = append(runs, &run{pair: p, procs: n})
		}
	}
	for round := range rounds {
		for _, r := range runs {
			if err := r.round(round%2 == 1, perSample); err != nil {
				return nil, err
			}
		}
	}
	results := make([]Result, len(runs))
	for i, r := range runs {
		results[i] = r.result()
	}
	return results, nil
}

// A run collects the samples of one pair.
type run struct {
	pair         Pair
	procs        int
	heed, theirs []sample
}

type sample struct {
	ns     float64 // per operation
	allocs uint64  // per operation
	bytes  uint64  // bytes allocated per operation
}

func (r *run) round(peerFirst bool, d time.Duration) error {
	sides := []struct {
		side Side
		to   *[]sample
	}{{r.pair.Heed, &r.heed}, {r.pair.Theirs, &r.theirs}}
	if peerFirst {
		slices.Reverse(sides)
	}
	for _, s := range sides {
		got, err := measure(s.side, r.procs, d, r.pair.Granted)
		if err != nil {
			return fmt.Errorf("bench: %s: %w", r.pair.Work, err)
		}
		*s.to = append(*s.to, got)
	}
	return nil
}

func (r *run) result() Result {
	ratios := make([]float64, len(r.heed))
	for i := range r.heed {
		ratios[i] = r.heed[i].ns / r.theirs[i].ns
	}
	return Result{
		Pair: r.pair, Procs: r.procs,
		Heed: medianOf(r.heed), Theirs: medianOf(r.theirs),
		Ratio: median(ratios), MinRatio: slices.Min(ratios), MaxRatio: slices.Max(ratios),
		HeedAllocs: r.heed[0].allocs, PeerAllocs: r.theirs[0].allocs,
		HeedBytes: r.heed[0].bytes, PeerBytes: r.theirs[0].bytes,
	}
}

// maxOps limits the search for a sufficiently long sample if an operation takes no time.
const maxOps = 1 << 30

// measure runs s for about d and returns the cost of one operation. With one goroutine the
// time is CPU time, which does not depend on other load. With several goroutines it is wall
// time, because it includes the time in which they wait for each other.
func measure(s Side, procs int, d time.Duration, granted bool) (sample, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	clock := ProcessorTime
	if procs > 1 {
		clock = wallTime
	}
	for n := 1000; ; n *= 2 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := clock()
		got := runParallel(s, procs, n)
		took := clock() - start
		runtime.ReadMemStats(&after)
		if want := map[bool]int{true: n * procs}[granted]; got != want {
			return sample{}, fmt.Errorf("%d of %d operations were granted: want %d", got, n*procs, want)
		}
		if took >= d/2 || n > maxOps {
			ops := n * procs
			return sample{float64(max(took, 1)) / float64(ops), (after.Mallocs - before.Mallocs) / uint64(ops),
				(after.TotalAlloc - before.TotalAlloc) / uint64(ops)}, nil
		}
	}
}

// runParallel runs n operations on each of procs goroutines.
func runParallel(s Side, procs, n int) int {
	if procs == 1 {
		return s(n)
	}
	var granted atomic.Int64
	var all sync.WaitGroup
	for range procs {
		all.Go(func() { granted.Add(int64(s(n))) })
	}
	all.Wait()
	return int(granted.Load())
}

var started = time.Now()

func wallTime() time.Duration { return time.Since(started) }

func medianOf(samples []sample) float64 {
	ns := make([]float64, len(samples))
	for i, s := range samples {
		ns[i] = s.ns
	}
	return median(ns)
}

// median returns the median of values, which it does not modify. For an even number of
// values it is the mean of the middle two.
func median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
