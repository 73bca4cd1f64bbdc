// Fleet runs processes that share one quota of an API and make their calls at the same
// time, without knowing the limits, and measures the cost. Each process has its own
// Transport and Tracker. The processes share what the server states, or do not share
// anything.
//
//	go run ./bench/fleet -json
//	go run ./bench/fleet -share memory
//	go run ./bench/fleet -share redis://127.0.0.1:6379
//	go run ./bench/fleet -url http://127.0.0.1:8080/items
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"time"
)

// A plan configures a run.
type plan struct {
	processes, calls, callers int
	rate                      int
	kind, url                 string
	rtt                       time.Duration
	noHeaders                 bool
}

type result struct {
	Server    string  `json:"server"`
	Share     string  `json:"share"`
	Processes int     `json:"processes"`
	Calls     int     `json:"calls"` // of all processes
	Sent      int64   `json:"sent"`
	Rejected  int64   `json:"rejected"`
	Percent   float64 `json:"rejected_percent"`
	Failed    int64   `json:"failed"`
	Elapsed   float64 `json:"elapsed_s"` // of the slowest process
	Ideal     float64 `json:"ideal_s"`   // 0: unknown, because the server is external
	Jain      float64 `json:"jain"`      // fairness index of the successes per second of the processes
	Held      int     `json:"processes_held"`
	// from the first 429 until the last process is held; 0: there was no 429
	HeldMS   float64 `json:"processes_held_ms"`
	Messages int64   `json:"messages"` // number of published updates; 0: unknown
}

func main() {
	var p plan
	flag.IntVar(&p.processes, "n", 10, "processes")
	flag.IntVar(&p.calls, "calls", 200, "calls of each")
	flag.IntVar(&p.callers, "c", 20, "callers in each")
	flag.IntVar(&p.rate, "rate", 50, "requests a second that the server allows")
	flag.DurationVar(&p.rtt, "rtt", 20*time.Millisecond, "to the server and back")
	flag.BoolVar(&p.noHeaders, "no-headers", false, "the server sends no rate-limit headers but Retry-After")
	flag.StringVar(&p.url, "url", "", "a server of yours; else one in memory")
	kind := flag.String("kind", "", "bucket, 1s or 10s (windows); else each of them")
	share := flag.String("share", "none", "none, memory, or the URL of a Redis")
	asJSON := flag.Bool("json", false, "print lines of JSON")
	flag.Parse()
	kinds := []string{"bucket", "1s", "10s"}
	switch {
	case p.url != "":
		kinds = []string{p.url}
	case *kind != "":
		kinds = []string{*kind}
	}
	for _, p.kind = range kinds {
		r, err := run(p, *share)
		if err != nil {
			log.Fatal(err)
		}
		if *asJSON {
			_ = json.NewEncoder(os.Stdout).Encode(r)
			continue
		}
		fmt.Printf("%-7s share %-7.7s %d of %d rejected (%.1f %%), %d failed, %.1f s (ideal %.1f), Jain %.3f, %d processes held after %.1f ms, %d messages\n",
			r.Server, r.Share, r.Rejected, r.Sent, r.Percent, r.Failed, r.Elapsed, r.Ideal, r.Jain, r.Held, r.HeldMS, r.Messages)
	}
}
