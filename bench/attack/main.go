// Attack runs attacks against a limited server and prints what they gained: requests beyond
// the limit, and memory.
//
//	go run ./bench/attack -json
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
	asJSON := flag.Bool("json", false, "print lines of JSON")
	flag.Parse()
	load := load{rate: *rate, length: *length, workers: *workers}
	bad := false
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
