// Healthy measures how clients treat servers without a limit: some fail a share of requests by request, backend,
// resource, tenant or route, some are slow, overloaded or stop for a while, and some state
// limits that they do not enforce. Time is virtual.
//
//	go run ./healthy -family '^field$' -seeds 1 -json
package main

import (
	"encoding/json"
	"flag"
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
	family := flag.String("family", "", "only families that match this regular `expression`: open, closed, crowd, cold, polls, overload, field")
	name := flag.String("row", "", "only rows whose name matches this regular `expression`")
	seeds := flag.Int("seeds", 5, "runs of each row")
	first := flag.Int("seed", 1, "the first seed")
	worst := flag.Int("worst", 20, "number of worst rows that are printed at the end")
	check := flag.Bool("check", false, "exit with code 1 if heed misses a goal")
	asJSON := flag.Bool("json", false, "print a line of JSON for each run instead of a table")
	flag.Parse()
	chosen := matching(rows(), compile(*family), compile(*name))
	clientNames := strings.Split(*names, ",")
	for _, name := range clientNames {
		if !slices.Contains(clients.Names(), name) {
			log.Fatalf("healthy: no client %q", name)
		}
	}
	if len(chosen) == 0 || *seeds <= 0 {
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
		measure(t, chosen, clientNames, *first, *seeds, show)
		if !*asJSON {
			table.worst(*worst)
		}
		if *check && table.missedRows > 0 {
			return 1
		}
		return 0
	})
}

// measure runs each row with each seed and client.
func measure(t *testing.T, chosen []row, clientNames []string, first, seeds int, show func(result)) {
	perRow := seeds * len(clientNames)
	simulation.Each(t, len(chosen)*perRow, func(i int) result {
		n := i % perRow
		r := chosen[i/perRow].run(clientNames[n%len(clientNames)], first+n/len(clientNames))
		r.lastInRow = n == perRow-1
		return r
	}, show)
}

func compile(expression string) *regexp.Regexp {
	e, err := regexp.Compile(expression)
	if err != nil {
		log.Fatal("healthy: ", err)
	}
	return e
}
