// Attack does to a limited server what its enemies would do, and prints what they
// gained: requests beyond what they may have, and memory.
//
//	go run ./bench/attack -json
//
// It ends with status 1 if they gained anything by one of our limiters. What a map of
// limiters without an end would do is shown beside them.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"
)

// A result is what came of an attack.
type result struct {
	Attack      string  `json:"attack"`
	Limiter     string  `json:"limiter"`
	Requests    int64   `json:"requests"`
	PerSecond   float64 `json:"per_second"`
	Processor   float64 `json:"processor_us"` // time that a request took of it, forging included
	Longest     float64 `json:"longest_ms"`   // that a request took
	Granted     int64   `json:"granted"`
	Allowed     int64   `json:"allowed"` // by the limit of the attacker, or the room for keys
	LimiterSize int64   `json:"limiter_kib"`
	Growth      int64   `json:"grown_kib"`     // in use after garbage collection, more than before the attack
	GrownMax    int64   `json:"grown_max_kib"` // of that
	Panics      int64   `json:"panics"`
	Peer        bool    `json:"peer,omitempty"` // not ours
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
		json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	verdict := "gained nothing"
	if !r.passed() {
		verdict = "GAINED"
	}
	fmt.Printf("%-28s %-14s %9d requests, %9.0f/s, %8.3f us each, the longest %8.3f ms   %8d of %8d granted   %6d KiB and %6d more   %s\n", r.Attack, r.Limiter,
		r.Requests, r.PerSecond, r.Processor, r.Longest, r.Granted, r.Allowed, r.LimiterSize, r.Growth, verdict)
}
