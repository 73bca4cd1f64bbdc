// Servers measures what a job of 300 calls costs on servers that limit requests in different
// ways, in virtual time. Nothing is declared to the client. It makes the job twice with the
// same Transport.
//
//	go run ./servers -json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/heed-go/heed/bench/clients"
	"github.com/heed-go/heed/bench/internal/simulation"
)

func main() {
	log.SetFlags(0)
	servers := flag.String("server", "", "only servers that match this regular `expression`")
	names := flag.String("client", "^(heed|retryablehttp|plain)$", "clients that match this regular `expression`")
	seed := flag.Int("seed", 1, "the first seed; it decides when jobs begin, how long responses take, in which order requests are served, and the bodies")
	runs := flag.Int("runs", 1, "runs of each server and client, each with the next seed")
	check := flag.Bool("check", false, "exit with code 1 and list the misses if heed misses a goal")
	asJSON := flag.Bool("json", false, "print a line of JSON for each server, client and job instead of a table")
	markdown := flag.String("markdown", "", "write the table to this `file`, in Markdown")
	flag.Parse()
	chosen := matching(rows(), compile(*servers))
	clientNames := matchingClients(compile(*names))
	if len(chosen) == 0 || len(clientNames) == 0 || *runs <= 0 {
		log.Fatal("servers: nothing to measure: see -help")
	}
	if *check && (!slices.Contains(clientNames, "heed") || !slices.Contains(clientNames, "retryablehttp")) {
		log.Fatal("servers: -check needs the clients heed and retryablehttp")
	}
	r := &report{rows: chosen, clients: clientNames}
	show := r.print
	if *asJSON {
		lines := json.NewEncoder(os.Stdout)
		show = func(r result) { _ = lines.Encode(r) }
	}
	simulation.Main(func(t *testing.T) int {
		measure(t, chosen, clientNames, *seed, *runs, func(job result) {
			r.add(job)
			show(job)
		})
		if *markdown != "" {
			if err := os.WriteFile(*markdown, r.markdown(*seed, *runs), 0o666); err != nil {
				log.Print("servers: ", err)
				return 1
			}
		}
		missed := r.misses()
		for _, m := range missed {
			fmt.Fprintln(os.Stderr, m)
		}
		if !*check {
			return 0
		}
		return min(len(missed), 1)
	})
}

// measure runs each row with each client and seed, and passes the results to show in that
// order.
func measure(t *testing.T, chosen []row, clientNames []string, seed, runs int, show func(result)) {
	perRow := len(clientNames) * runs
	simulation.Each(t, len(chosen)*perRow, func(i int) []result {
		n := i % perRow
		return chosen[i/perRow].run(clientNames[n/runs], seed+n%runs)
	}, func(jobs []result) {
		for _, job := range jobs {
			show(job)
		}
	})
}

func compile(expression string) *regexp.Regexp {
	e, err := regexp.Compile(expression)
	if err != nil {
		log.Fatal("servers: ", err)
	}
	return e
}

func matchingClients(e *regexp.Regexp) (some []string) {
	for _, name := range clients.Names() {
		if e.MatchString(name) {
			some = append(some, name)
		}
	}
	return some
}
