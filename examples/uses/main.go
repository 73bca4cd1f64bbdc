// Uses runs the jobs of the examples in the folders beside it against local servers that
// behave as the real APIs document: with the client that the SDK, or net/http, has by
// default, and with heed. It prints what the servers received.
//
//	go run .               # the table of docs/uses.md
//	go run . -json         # a line of JSON for each client
//	go run . -inflight 16  # the default clients have at most 16 requests in flight
//	go run . stripe        # the examples whose name contains stripe
//
// Time is virtual, so that a job of an hour takes some seconds.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/heed-go/heed/examples/uses/batchjob"
	"github.com/heed-go/heed/examples/uses/crawler"
	"github.com/heed-go/heed/examples/uses/github"
	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/examples/uses/mobile"
	"github.com/heed-go/heed/examples/uses/openai"
	"github.com/heed-go/heed/examples/uses/s3"
	"github.com/heed-go/heed/examples/uses/stripe"
	"github.com/heed-go/heed/examples/uses/workers"
)

// scenarios are the examples, in the order of docs/with-sdks.md and docs/uses.md.
var scenarios = []func() scenario.Scenario{
	github.Scenario,
	openai.Scenario,
	s3.Scenario,
	stripe.Scenario,
	crawler.Scenario,
	workers.Scenario,
	batchjob.Scenario,
	mobile.Scenario,
}

func main() {
	asJSON := flag.Bool("json", false, "print a line of JSON for each client instead of a table")
	inFlight := flag.Int("inflight", 0, "let the default clients have at most so many requests in flight; 0: any number")
	flag.Parse()
	chosen, err := choose(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, "uses:", err)
		os.Exit(2)
	}
	// Only tests have virtual time.
	matchAll := func(_, _ string) (bool, error) { return true, nil }
	test := testing.InternalTest{Name: "uses", F: func(t *testing.T) {
		var results []scenario.Result
		for _, s := range chosen {
			plain, heed := s.Run(t, *inFlight)
			results = append(results, plain, heed)
		}
		if err := write(os.Stdout, results, *asJSON); err != nil {
			fmt.Fprintln(os.Stderr, "uses:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}}
	testing.Main(matchAll, []testing.InternalTest{test}, nil, nil)
}

// choose returns the examples whose name contains part.
func choose(part string) (chosen []scenario.Scenario, err error) {
	for _, newScenario := range scenarios {
		if s := newScenario(); strings.Contains(strings.ToLower(s.Name), strings.ToLower(part)) {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return nil, fmt.Errorf("no example has %q in its name", part)
	}
	return chosen, nil
}

// write prints results as a table or as lines of JSON.
func write(out io.Writer, results []scenario.Result, asJSON bool) error {
	if asJSON {
		lines := json.NewEncoder(out)
		for _, r := range results {
			if err := lines.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "example\tclient\tcalls\tsent\tthrottled\tduplicated\tfailed\tmost sends\ttime\toldest signature\t")
	for _, r := range results {
		signature := "-"
		if r.OldestSignature != nil {
			signature = fmt.Sprintf("%.1f s", *r.OldestSignature)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f s\t%s\t\n",
			r.Example, r.Client, r.Calls, r.Sent, r.Throttled, r.Duplicated, r.Failed, r.MostSends, r.Elapsed, signature)
	}
	return t.Flush()
}
