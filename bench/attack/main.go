// Attack runs attacks against a limited server and prints what they gained: requests beyond
// the limit, and memory. First, clients of 1, 2 and 1,000 networks invent keys: it shows
// how many other clients are served meanwhile, and whether a limited client gains anything.
//
//	go run ./bench/attack -json
//	go run ./bench/attack -for 0 -keys 10000000 -json    invented keys only
//
// It exits with status 1 if an attack gained anything with one of our limiters. A map of
// limiters without a bound is shown for comparison.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"
)

// A result holds the figures of one attack.
type result struct {
	Attack      string  `json:"attack"`
	Limiter     string  `json:"limiter"`
	Requests    int64   `json:"requests"`
	PerSecond   float64 `json:"per_second"`
	Processor   float64 `json:"processor_us"` // mean CPU time of a request, including its creation
	Longest     float64 `json:"longest_ms"`   // maximum time of a request
	Granted     int64   `json:"granted"`
	Allowed     int64   `json:"allowed"` // by the limit of the attacker, or the maximum number of keys
	LimiterSize int64   `json:"limiter_kib"`
	Growth      int64   `json:"grown_kib"`     // increase of the memory in use after garbage collection
	GrownMax    int64   `json:"grown_max_kib"` // maximum increase that is allowed
	Panics      int64   `json:"panics"`
	Peer        bool    `json:"peer,omitempty"` // not a limiter of ours
}

func (r result) passed() bool {
	return r.Granted <= r.Allowed && r.Growth <= r.GrownMax && r.Panics == 0
}

func main() {
	rate := flag.Int64("rate", 1_000_000, "requests a second that are offered")
	length := flag.Duration("for", 5*time.Second, "how long each attack lasts")
	workers := flag.Int("workers", runtime.GOMAXPROCS(0), "goroutines that attack")
	keys := flag.Int("keys", 10_000_000, "keys that are invented")
	asJSON := flag.Bool("json", false, "print lines of JSON")
	flag.Parse()
	load := load{rate: *rate, length: *length, workers: *workers}
	bad := !inventedKeys(*keys, func(r inventedResult) { showInvented(r, *asJSON) })
	if *length <= 0 {
		attacks = nil
	}
	for _, a := range attacks {
		for _, k := range a.limiters {
			r := load.run(a, k)
			bad = bad || !r.passed() && !r.Peer
			show(r, *asJSON)
		}
	}
	if bad {
		os.Exit(1)
	}
}

func showInvented(r inventedResult, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	verdict := "passed"
	if !r.passed() {
		verdict = "FAILED"
	}
	fmt.Printf("%d invented keys of %4d networks, %d units each, %-22s at least %4d and again %4d of %d served   limited %d and %d of %d   %6d of %6d KiB   %.2f us   %s\n", r.Keys, r.Networks, r.Cost, r.Limiter,
		r.FirstServed, r.SecondServed, r.Honest, r.Limited, r.Late, r.Limit, r.Size, r.MaxSize, r.Processor, verdict)
}

func show(r result, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	verdict := "gained nothing"
	if !r.passed() {
		verdict = "GAINED"
	}
	fmt.Printf("%-28s %-14s %9d requests, %9.0f/s, %8.3f us each, the longest %8.3f ms   %8d of %8d granted   %6d KiB and %6d more   %s\n", r.Attack, r.Limiter,
		r.Requests, r.PerSecond, r.Processor, r.Longest, r.Granted, r.Allowed, r.LimiterSize, r.Growth, verdict)
}
