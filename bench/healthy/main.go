// Healthy measures how clients treat servers without a limit that fail a small share of
// requests at random, and one that is overloaded, in virtual time.
//
//	go run ./bench/healthy -json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/heed-go/heed/bench/clients"
	"github.com/heed-go/heed/bench/internal/simulation"
)

func main() {
	log.SetFlags(0)
	names := flag.String("client", "plain,retryablehttp,heed", "which of "+strings.Join(clients.Names(), ", "))
	loops := flag.String("loop", "", "only these loops: open, closed, crowd, cold, polls, overload")
	kinds := flag.String("fault", "", "only these faults: 503, 500, drop, 429, 403")
	percents := flag.String("percent", "", "only these percentages: 0.1, 1, 5; 30 and 60 for overload")
	seeds := flag.Int("seeds", 5, "runs of each row, with seeds from 1")
	check := flag.Bool("check", false, "exit with code 1 if heed misses a goal")
	asJSON := flag.Bool("json", false, "print a line of JSON for each run instead of a table")
	flag.Parse()
	chosen := matching(rows(), list(*loops), list(*kinds), list(*percents))
	clientNames := list(*names)
	for _, name := range clientNames {
		if !slices.Contains(clients.Names(), name) {
			log.Fatalf("healthy: no client %q", name)
		}
	}
	if len(chosen) == 0 || len(clientNames) == 0 || *seeds <= 0 {
		log.Fatal("healthy: nothing to measure: see -help")
	}
	table := &table{clients: clientNames}
	show := table.add
	if *asJSON {
		lines := json.NewEncoder(os.Stdout)
		show = func(r result) {
			table.evaluate(r)
			_ = lines.Encode(r)
		}
	}
	simulation.Main(func(t *testing.T) int {
		measure(t, chosen, clientNames, *seeds, show)
		if table.missedRows > 0 && !*asJSON {
			fmt.Printf("%d rows miss a goal\n", table.missedRows)
		}
		if *check && table.missedRows > 0 {
			return 1
		}
		return 0
	})
}

// measure runs each row with each seed and client.
func measure(t *testing.T, chosen []row, clientNames []string, seeds int, show func(result)) {
	perRow := seeds * len(clientNames)
	simulation.Each(t, len(chosen)*perRow, func(i int) result {
		n := i % perRow
		r := chosen[i/perRow].run(clientNames[n%len(clientNames)], 1+n/len(clientNames))
		r.lastInRow = n == perRow-1
		return r
	}, show)
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}
