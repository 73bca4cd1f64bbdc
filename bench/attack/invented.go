package main

import (
	"runtime"
	"time"

	"github.com/heed-go/heed/bench"
	"github.com/heed-go/heed/bench/internal/heap"
	"github.com/heed-go/heed/internal/inventedkeys"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// An inventedResult holds the figures of an attack with invented keys on a limiter of the
// default size.
type inventedResult struct {
	Attack       string  `json:"attack"`
	Limiter      string  `json:"limiter"`
	Networks     int     `json:"networks"`
	Keys         int     `json:"keys"`
	Cost         int64   `json:"cost"`          // units that each invented key claims
	Processor    float64 `json:"processor_us"`  // mean CPU time of an invented key
	Honest       int     `json:"honest"`        // new clients at each moment
	FirstServed  int     `json:"first_served"`  // minimum of all moments
	SecondServed int     `json:"second_served"` // minimum of all moments, of the same clients later
	Limit        int64   `json:"limit"`
	Limited      int64   `json:"limited"` // units granted to a client that is limited before the attack
	Late         int64   `json:"late"`    // units granted to a client of the same network that comes later
	Attacker     int64   `json:"attacker"`
	Size         int64   `json:"kib"` // of the limiter after the attack
	MaxSize      int64   `json:"max_kib"`
}

// passed reports whether other clients were served, and whether a limited client gained
// nothing from one network and no more than its limit from many.
func (r inventedResult) passed() bool {
	most := r.Limit
	if r.Networks > 2 {
		most = 2 * r.Limit
	}
	return r.FirstServed*100 >= r.Honest*99 && r.SecondServed*100 >= r.Honest*99 && r.Limited <= most && r.Late <= most && r.Size <= r.MaxSize
}

const defaultKeys = 1 << 16 // default of BucketsConfig.Max and Limiter.Max

// inventedKinds are the limiters that are attacked, and the bytes per key that bound their
// memory.
var inventedKinds = []struct {
	name        string
	bytesPerKey int64
	make        func(throttle.Clock) throttle.Limiter
}{
	{"keyed.NewBuckets", 40, func(clk throttle.Clock) throttle.Limiter {
		return throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: limit}), clk)
	}},
	{"keyed.Limiter, bucket", 700, func(clk throttle.Clock) throttle.Limiter {
		return &keyed.Limiter{Clock: clk, New: func(string) throttle.Limiter { return throttle.WithClock(throttle.NewTokenBucket(limit), clk) }}
	}},
	{"keyed.Limiter, window", 700, func(clk throttle.Clock) throttle.Limiter {
		return &keyed.Limiter{Clock: clk, New: func(string) throttle.Limiter {
			return throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: perHour, Per: 24 * time.Hour}), clk)
		}}
	}},
}

// inventedKeys attacks each limiter with invented keys of 1, 2 and 1,000 networks, of which
// each claims one unit or its whole limit.
func inventedKeys(keys int, show func(inventedResult)) (passed bool) {
	passed = true
	for _, kind := range inventedKinds {
		for _, networks := range []int{1, 2, 1000} {
			for _, cost := range []int64{1, perHour} {
				s := inventedkeys.Scenario{Networks: networks, Keys: keys, Cost: cost, Length: 10 * time.Minute, Moments: 20, Honest: 2000}
				clk, empty := new(inventedkeys.Clock), heap.InUse()
				l, used := kind.make(clk), bench.ProcessorTime()
				got := s.Run(l, clk)
				used = bench.ProcessorTime() - used
				r := inventedResult{
					Attack: "invented keys", Limiter: kind.name, Networks: networks, Keys: keys, Cost: cost, Processor: used.Seconds() * 1e6 / float64(keys),
					Honest: s.Honest, FirstServed: got.FirstServed, SecondServed: got.SecondServed, Limit: perHour, Limited: got.Limited, Late: got.Late, Attacker: got.Attacker,
					Size: (heap.InUse() - empty) >> 10, MaxSize: defaultKeys * kind.bytesPerKey >> 10,
				}
				runtime.KeepAlive(l)
				show(r)
				passed = passed && r.passed()
			}
		}
	}
	return passed
}
