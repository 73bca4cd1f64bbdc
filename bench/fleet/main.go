// Fleet has processes that live off one quota of an API do their calls, all at
// once and cold, and looks at what that costs: each has a Transport and Tracker of
// its own. They share what the server says, or know nothing of each other.
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

// A plan is what is done.
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
	Calls     int     `json:"calls"` // of all
	Sent      int64   `json:"sent"`
	Refused   int64   `json:"refused"`
	Percent   float64 `json:"refused_percent"`
	Failed    int64   `json:"failed"`
	Elapsed   float64 `json:"elapsed_s"` // of the slowest
	Ideal     float64 `json:"ideal_s"`   // 0: the server is not ours
	Jain      float64 `json:"jain"`      // of the successes a second of each process
	Held      int     `json:"processes_held"`
	HeldMS    float64 `json:"processes_held_ms"` // from the first 429 to the last of them; 0: there was none
	Messages  int64   `json:"messages"`          // posted, if it is known
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
			json.NewEncoder(os.Stdout).Encode(r)
			continue
		}
		fmt.Printf("%-7s share %-7.7s %d of %d refused (%.1f %%), %d failed, %.1f s (ideal %.1f), Jain %.3f, %d processes held after %.1f ms, %d messages\n",
			r.Server, r.Share, r.Refused, r.Sent, r.Percent, r.Failed, r.Elapsed, r.Ideal, r.Jain, r.Held, r.HeldMS, r.Messages)
	}
}
