// Overload measures how clients treat a server that is overloaded, and one that bounds the
// requests in flight, in virtual time.
//
//	go run ./overload -json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/heed-go/heed/bench/clients"
	"github.com/heed-go/heed/bench/internal/simulation"
)

func main() {
	log.SetFlags(0)
	names := flag.String("client", "plain,retryablehttp,heed", "which of "+strings.Join(clients.Names(), ", "))
	name := flag.String("row", "", "only rows whose name matches this regular `expression`")
	seeds := flag.Int("seeds", 9, "runs of each row: with 9, 486 runs of an overloaded server")
	first := flag.Int("seed", 1, "the first seed")
	check := flag.Bool("check", false, "exit with code 1 if heed misses a goal")
	asJSON := flag.Bool("json", false, "print a line of JSON for each run instead of a table")
	flag.Parse()
	clientNames, chosen := strings.Split(*names, ","), rows(regexp.MustCompile(*name))
	for _, name := range clientNames {
		if !slices.Contains(clients.Names(), name) {
			log.Fatalf("overload: no client %q", name)
		}
	}
	if len(chosen) == 0 || *seeds <= 0 {
		log.Fatal("overload: nothing to measure: see -help")
	}
	all := total{}
	simulation.Main(func(t *testing.T) int {
		var runs []result // of the current row
		perRow := *seeds * len(clientNames)
		simulation.Each(t, len(chosen)*perRow, func(i int) result {
			n := i % perRow
			return chosen[i/perRow].run(clientNames[n%len(clientNames)], *first+n/len(clientNames))
		}, func(r result) {
			if *asJSON {
				_ = json.NewEncoder(os.Stdout).Encode(r)
			}
			if runs = append(runs, r); len(runs) == perRow {
				all.add(runs)
				if !*asJSON {
					show(clientNames, runs)
				}
				runs = nil
			}
		})
		if !*asJSON {
			fmt.Println(all)
		}
		if *check && all.missed > 0 {
			return 1
		}
		return 0
	})
}

// show prints the runs of a row.
func show(clientNames []string, runs []result) {
	fmt.Printf("%-44s", runs[0].Row)
	for _, name := range clientNames {
		own := byClient(runs, name)
		failed, times := simulation.Summarize(own, result.failed), simulation.Summarize(own, result.times)
		fmt.Printf(" | %s %5.2f (%5.2f) %%, ", name, failed.Mean, failed.Max)
		if runs[0].Ideal > 0 {
			fmt.Printf("%.2f (%.2f) x", times.Mean, times.Max)
			continue
		}
		fmt.Printf("%2d worse, until %4.1f s", worseThanPlain(runs, name), simulation.Summarize(own, result.overloaded).Max)
	}
	verdict := "met"
	if missed := misses(runs); len(missed) > 0 {
		verdict = "missed: " + strings.Join(missed, ", ")
	}
	fmt.Println(" |", verdict)
}
