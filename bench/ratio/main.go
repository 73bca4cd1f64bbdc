// Ratio measures every pair of package bench and writes the table of ratios.
//
//	go run ./ratio -out BENCHMARKS.md
//
// With -json it prints a line of JSON for each row of the table instead; times are in nanoseconds.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/bench"
)

func main() {
	rounds := flag.Int("rounds", 8, "rounds in which every pair is measured; at least 6 for figures to publish")
	sample := flag.Duration("sample", 200*time.Millisecond, "about how long one sample takes; the system needs some 100 ms to spread threads over its processors")
	only := flag.String("only", "", "regular expression of the work to measure; empty means all")
	out := flag.String("out", "", "file to write the table to, besides printing it")
	asJSON := flag.Bool("json", false, "print a line of JSON for each row instead of the table")
	flag.Parse()
	if *rounds < 1 {
		log.Fatal("ratio: -rounds must be positive")
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		log.Fatalf("ratio: -only: %v", err)
	}
	pairs := slices.DeleteFunc(bench.Pairs(), func(p bench.Pair) bool { return !chosen.MatchString(p.Work) })
	load := loadAverage()
	results, err := bench.Compare(pairs, []int{1, 2, 8}, *rounds, *sample)
	if err != nil {
		log.Fatal(err)
	}
	page := head(*rounds, load) + table(results)
	if *asJSON {
		printJSON(results)
	} else {
		fmt.Print(page)
	}
	if *out != "" {
		if err := os.WriteFile(*out, []byte(page), 0o666); err != nil {
			log.Fatal(err)
		}
	}
}

// printJSON prints a line for each result, with the columns of the table.
func printJSON(results []bench.Result) {
	for _, r := range results {
		if err := json.NewEncoder(os.Stdout).Encode(map[string]any{
			"work": r.Pair.Work, "goroutines": r.Procs, "heed": r.Pair.Call, "peer": r.Pair.Peer, "heed_ns": r.Heed, "peer_ns": r.Theirs,
			"ratio": r.Ratio, "least": r.MinRatio, "most": r.MaxRatio,
			"heed_allocs": r.HeedAllocs, "peer_allocs": r.PeerAllocs, "heed_bytes": r.HeedBytes, "peer_bytes": r.PeerBytes,
		}); err != nil {
			log.Fatal(err)
		}
	}
}

func head(rounds int, load string) string {
	return fmt.Sprintf(`# Side by side

Written by `+"`make bench`"+`; do not edit. Ratio: time of heed by time of the peer, below 1 is faster. Both sides
run in one process by turns; a ratio is the median over %d rounds of the ratio within a round, with the least
and the greatest beside it. One goroutine is measured in processor time, several in wall time.

%s, %s/%s, %d processors, load average %s when it began.

`, rounds, runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), load)
}

func table(results []bench.Result) string {
	var s strings.Builder
	s.WriteString("| work | goroutines | heed | peer | heed ns | peer ns | ratio | least, most | allocs heed, peer | bytes heed, peer |\n")
	s.WriteString("|---|--:|---|---|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range results {
		fmt.Fprintf(&s, "| %s | %d | %s | %s | %.1f | %.1f | **%.2f** | %.2f, %.2f | %d, %d | %d, %d |\n",
			r.Pair.Work, r.Procs, r.Pair.Call, r.Pair.Peer, r.Heed, r.Theirs, r.Ratio, r.MinRatio, r.MaxRatio, r.HeedAllocs, r.PeerAllocs, r.HeedBytes, r.PeerBytes)
	}
	return s.String()
}

// loadAverage returns the load average of the machine, if the system provides it.
func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	load, _, _ := strings.Cut(string(text), " ")
	return load
}
