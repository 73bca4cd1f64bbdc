// Redisfail makes a real Redis unreachable for two processes that share a limit, three
// times per kind of fault, and measures the effect: with a Fallback, and with go-redis
// alone.
//
//	go run ./bench/redisfail -json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// A result holds the figures for one kind of fault.
type result struct {
	Fault     string  `json:"fault"`
	Client    string  `json:"client"`
	Decisions int     `json:"decisions"` // while Redis was unreachable, and until it decided again
	Errors    int     `json:"errors"`    // those of them without a decision
	P50       float64 `json:"p50_ms"`    // of the same decisions
	P99       float64 `json:"p99_ms"`    // of the same decisions
	Max       float64 `json:"max_ms"`    // of the same decisions
	// maximum over processes and outages, from the recovery of Redis until it decides
	Recovery float64 `json:"recovery_ms"`
	// decisions without Redis, from then until the next fault
	WithoutRedis float64 `json:"without_redis_percent"`
	// how often breakers opened in total; one per process and outage is necessary
	Opened  int64 `json:"opened"`
	Granted int64 `json:"granted"` // units granted in total
	// units granted beyond rate x time, in bursts; each of three outages may add two to the
	// first
	Over float64 `json:"over_bursts"`
	// units granted while Redis was unavailable, of those of the limit in that time
	Rate   float64 `json:"rate_without_redis_percent"`
	Leaked int     `json:"goroutines_leaked"` // at the end
}

func main() {
	log.SetFlags(0)
	outage := flag.Duration("outage", 2*time.Second, "how long Redis is unavailable")
	between := flag.Duration("between", 2*time.Second, "how long it is available before and after")
	alone := flag.Bool("alone", true, "measure go-redis without a Fallback, too")
	pool := flag.Int("pool", 200, "PoolSize of the clients: after so many failed dials in a row go-redis looks for a server once a second only")
	leased := flag.Bool("leased", false, "Mode Leased instead of Grouped")
	only := flag.String("only", "", "the name of a fault; empty: all of them")
	asJSON := flag.Bool("json", false, "print lines of JSON")
	flag.Parse()
	redistest.DiscardLog()
	t := new(redistest.Program)
	defer t.End()
	for _, f := range faults {
		for _, client := range []string{"Fallback", "go-redis"} {
			if client == "go-redis" && !*alone || *only != "" && *only != f.name {
				continue
			}
			r := measure(t, f, plan{client == "Fallback", *leased, *pool, *outage, *between})
			r.Fault, r.Client = f.name, client
			if err := print(os.Stdout, r, *asJSON); err != nil {
				t.Fatalf("redisfail: %v", err)
			}
		}
	}
}

func print(w io.Writer, r result, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(r)
	}
	_, err := fmt.Fprintf(w, "%-21s %-8s  %6d decisions, %5d errors, p50 %8.2f ms, p99 %8.2f ms, max %8.2f ms, recovered after %5.0f ms, %5.2f %% without Redis, opened %d times, %5.2f bursts over, %5.1f %% of the rate meanwhile, %d goroutines leaked\n",
		r.Fault, r.Client, r.Decisions, r.Errors, r.P50, r.P99, r.Max, r.Recovery, r.WithoutRedis, r.Opened, r.Over, r.Rate, r.Leaked)
	return err
}

// A fault describes how to make Redis fail and how to restore it.
type fault struct {
	name     string
	viaProxy bool          // clients connect through the proxy
	deadline time.Duration // of each claim; zero: none
	begin    func(*redistest.Server, *redistest.Proxy)
	end      func(*redistest.Server, *redistest.Proxy)
}

var faults = []fault{
	{
		name:  "kill -9",
		begin: func(s *redistest.Server, _ *redistest.Proxy) { s.Kill() },
		end:   func(s *redistest.Server, _ *redistest.Proxy) { s.Restart() },
	},
	viaProxy("200 ms", redistest.Slow),
	viaProxy("resets", redistest.Reset),
	viaProxy("black hole", redistest.BlackHole),
	viaProxy("no replies", redistest.NoReplies),
	withDeadline("hung, 30 ms deadlines", 30*time.Millisecond, viaProxy("", redistest.BlackHole)),
}

// withDeadline returns f with a deadline for each claim.
func withDeadline(name string, deadline time.Duration, f fault) fault {
	f.name, f.deadline = name, deadline
	return f
}

func viaProxy(name string, f redistest.Fault) fault {
	return fault{
		name:     name,
		viaProxy: true,
		begin:    func(_ *redistest.Server, p *redistest.Proxy) { p.Set(f) },
		end:      func(_ *redistest.Server, p *redistest.Proxy) { p.Set(redistest.Pass) },
	}
}
