// Goodput counts how many units of a limit end as responses in time when calls with a deadline ask
// for more than the limit admits, in virtual time. A request that is sent too late uses a unit
// without any effect, and so does a unit that no waiting call gets.
//
//	go run ./bench/goodput -json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/heed-go/heed/bench/internal/simulation"
)

func main() {
	log.SetFlags(0)
	limits := flag.String("limit", "", "only these limits: own, stated, learned")
	clients := flag.String("client", "", "only these clients: heed, plain, retryablehttp, x/time/rate")
	seed := flag.Uint64("seed", 1, "determines the latencies and the start")
	length := flag.Duration("length", 10*time.Minute, "virtual time of each row")
	check := flag.Bool("check", false, "exit with code 1 if heed misses a goal")
	asJSON := flag.Bool("json", false, "print lines of JSON instead of a table")
	flag.Parse()
	chosen := matching(rows(), *limits, *clients)
	if len(chosen) == 0 || *length <= 0 {
		log.Fatal("goodput: nothing to measure: see -help")
	}
	if !*asJSON {
		fmt.Println("limit    calls/s latency noise  client         in time rejected   sent failed  failed early")
	}
	simulation.Main(func(t *testing.T) int {
		missed := 0
		simulation.Each(t, len(chosen), func(i int) result { return chosen[i].run(*seed, *length) }, func(r result) {
			if r.Client == "heed" && !r.meetsGoal() {
				missed++
			}
			show(r, *asJSON)
		})
		if *check && missed > 0 {
			return 1
		}
		return 0
	})
}

// matching returns the rows with the given limits and clients. An empty list matches all.
func matching(all []row, limits, clients string) (chosen []row) {
	asked := func(list, s string) bool { return list == "" || strings.Contains(","+list+",", ","+s+",") }
	for _, r := range all {
		if asked(limits, r.limit) && asked(clients, r.client) {
			chosen = append(chosen, r)
		}
	}
	return chosen
}

func show(r result, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	verdict := ""
	if r.Client == "heed" {
		if verdict = "met"; !r.meetsGoal() {
			verdict = "missed"
		}
	}
	fmt.Printf("%-8s %7d %5.0fms %5.1f  %-14s %6.1f%% %8d %6d %6d %12.1f%% %s\n",
		r.Limit, r.Demand, 1000*r.Latency, r.Noise, r.Client, 100*r.Share, r.Rejected, r.Sent, r.Failed, 100*r.Early, verdict)
}
