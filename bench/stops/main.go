// Stops measures what clients do while a server rejects all requests for some seconds and
// states correctly when it will accept them, in virtual time.
//
//	go run ./stops -json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/heed-go/heed/bench/internal/simulation"
)

func main() {
	log.SetFlags(0)
	names := flag.String("client", "^(heed|retryablehttp)$", "clients that match this regular `expression`")
	name := flag.String("row", "", "only rows whose name matches this regular `expression`")
	seeds := flag.Int("seeds", 1, "runs of each row")
	first := flag.Int("seed", 1, "the first seed")
	check := flag.Bool("check", false, "exit with code 1 if heed misses a goal")
	asJSON := flag.Bool("json", false, "print a line of JSON for each run instead of a table")
	flag.Parse()
	chosen := matching(rows(), regexp.MustCompile(*name), regexp.MustCompile(*names))
	if len(chosen) == 0 || *seeds <= 0 {
		log.Fatal("stops: nothing to measure: see -help")
	}
	simulation.Main(func(t *testing.T) int {
		missed, ours, worst, early, during := 0, 0, 0., 0, 0
		simulation.Each(t, len(chosen)**seeds, func(i int) result {
			r := chosen[i / *seeds]
			return r.run(r.newClient, *first+i%*seeds)
		}, func(r result) {
			show(r, *asJSON)
			if r.Client == "heed" {
				ours++
				missed += min(len(r.misses()), 1)
				worst, early, during = max(worst, r.times()), early+r.Early, max(during, r.During)
			}
		})
		if !*asJSON {
			fmt.Printf("heed misses a goal in %d of %d runs: at most %.2f x, %d sent early in all, at most %d during a stop\n", missed, ours, worst, early, during)
		}
		if *check {
			return min(missed, 1)
		}
		return 0
	})
}

func show(r result, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(os.Stdout).Encode(r)
		return
	}
	verdict := "met"
	if missed := r.misses(); len(missed) > 0 {
		verdict = "missed: " + strings.Join(missed, ", ")
	}
	fmt.Printf("%-72s %-13s %8.2f s, %6.2f x, %4d early, %4d during the stop, %4d failed, %6d sent: %s\n",
		r.Row, r.Client, r.Elapsed, r.times(), r.Early, r.During, r.Failed, r.Sent, verdict)
}
