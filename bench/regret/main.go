// Regret measures whether a client does harm: it runs clients in random worlds, in virtual
// time, and compares each call with the better of a plain client and go-retryablehttp in the
// same world.
//
//	go run ./regret -seeds 1000
//	go run ./regret -world 17 -v
//
// Package worlds describes the worlds and the comparison.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/heed-go/heed/bench/internal/simulation"
	"github.com/heed-go/heed/bench/internal/worlds"
)

func main() {
	log.SetFlags(0)
	seeds := flag.Int("seeds", 100, "number of worlds")
	first := flag.Uint64("seed", 1, "seed of the first world; 0 means a random one")
	names := flag.String("client", strings.Join(worlds.Clients(), ","), "clients to run, of those that worlds.AllClients returns; the peers and the oracle are added")
	only := flag.Int64("world", -1, "only the world with this seed")
	verbose := flag.Bool("v", false, "with -world: a time line for each client")
	worst := flag.Int("worst", 10, "number of worlds to print in which -client does most harm")
	asJSON := flag.Bool("json", false, "print a line of JSON for each world, and one with the summary")
	invariants := flag.Bool("invariants", false, "count the violations of the invariants")
	causes := flag.Bool("causes", false, "print the harm by why calls were late or not sent again, and by the properties of the worlds")
	check := flag.Bool("check", false, "exit with code 1 if heed misses a goal")
	flag.Parse()
	chosen := chosenClients(*names)
	if *only >= 0 {
		*seeds, *first = 1, uint64(*only)
	}
	if *first == 0 && *only < 0 {
		*first = uint64(rand.Uint32())
		log.Printf("regret: -seed %d", *first)
	}
	debug.SetGCPercent(400) // a run allocates much and keeps little
	summary := newSummary(chosen)
	lines := json.NewEncoder(os.Stdout)
	simulation.Main(func(t *testing.T) int {
		measure(t, *first, *seeds, chosen, func(runs []*worlds.Run) {
			r := newResult(runs)
			summary.add(r)
			switch {
			case *asJSON:
				_ = lines.Encode(r)
			case *only >= 0:
				r.print(os.Stdout)
				if *verbose {
					for _, run := range runs {
						printTimeline(os.Stdout, run)
					}
				}
			}
		})
		missed := summary.missed()
		switch {
		case *asJSON:
			_ = lines.Encode(summary.figures())
		case *only < 0:
			summary.print(os.Stdout, *worst)
		}
		if *causes && !*asJSON {
			summary.printCauses(os.Stdout)
		}
		if *invariants && !*asJSON {
			summary.printInvariants(os.Stdout)
		}
		if *check {
			for _, goal := range missed {
				log.Print("regret: missed: ", goal)
			}
			if len(missed) > 0 {
				return 1
			}
		}
		return 0
	})
}

// chosenClients returns the clients of a list, with those that they are compared with.
func chosenClients(list string) (chosen []string) {
	asked := strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
	for _, name := range asked {
		if !slices.Contains(worlds.AllClients(), name) {
			log.Fatalf("regret: no client %q: take one of %s", name, strings.Join(worlds.AllClients(), ", "))
		}
	}
	needed := append(asked, worlds.Plain, worlds.RetryableHTTPSafe, worlds.Oracle)
	for _, name := range asked {
		needed = append(needed, worlds.WithoutTracker(name))
	}
	for _, name := range worlds.AllClients() {
		if slices.Contains(needed, name) {
			chosen = append(chosen, name)
		}
	}
	return chosen
}

// measure runs clients in n worlds and calls show with the runs of each world, in the order
// of the seeds. The oracle runs only in worlds with a limit.
func measure(t *testing.T, first uint64, n int, chosen []string, show func([]*worlds.Run)) {
	var runs []*worlds.Run
	simulation.Each(t, n*len(chosen), func(i int) *worlds.Run {
		w, client := worlds.New(first+uint64(i/len(chosen))), chosen[i%len(chosen)]
		if client == worlds.Oracle && w.Limit == nil {
			return &worlds.Run{World: w, Client: client}
		}
		return w.Run(client)
	}, func(r *worlds.Run) {
		if len(r.Results) > 0 {
			runs = append(runs, r)
		}
		if r.Client == chosen[len(chosen)-1] {
			show(runs)
			runs = nil
		}
	})
}

// group returns the name of the group of worlds to which a world belongs.
func group(limited bool) string {
	if limited {
		return withLimit
	}
	return noLimit
}

// The groups of worlds. Worlds without a limit in which a peer fails less than 1 % of the
// calls are tame.
const (
	tame      = "tame"
	noLimit   = "no limit"
	withLimit = "with a limit"
)

// printf prints to w, which does not fail.
func printf(w interface{ Write([]byte) (int, error) }, format string, args ...any) {
	_, _ = fmt.Fprintf(w, format, args...)
}
