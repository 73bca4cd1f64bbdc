// Harm counts what clients with retries do to servers and callers when things go
// wrong: ours, and those that Go programs are built with, as their documentation shows
// them. All else being well, every number is 0.
//
//	go run ./bench/harm -json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/heed-go/heed/bench/clients"
)

// A result is the harm that one client does.
type result struct {
	Client       string `json:"client"`
	Early        int    `json:"early"`         // requests that came before Retry-After was over
	ShortBodies  int    `json:"short_bodies"`  // requests that arrived with less than their body
	Duplicates   int    `json:"duplicates"`    // POSTs that were sent again though they may have been done
	Leaked       int    `json:"leaked"`        // bodies of answers that nobody closed
	UselessWaits int    `json:"useless_waits"` // callers kept waiting for what could not come in time, or came in an hour
	Failed       int    `json:"failed"`        // calls without a good answer, of those where patience brings one

	StreamExtra int64 `json:"stream_extra_kib"` // allocated for an upload of 64 MiB, beyond a plain client
	NestedSends int   `json:"nested_sends"`     // of a call through three clients on top of each other, three attempts each; 0: not run, it would take minutes
}

func main() {
	log.SetFlags(0)
	names := flag.String("clients", "plain,heed,retryablehttp,failsafe,rehttp", "which of "+strings.Join(clients.Names(), ", "))
	asJSON := flag.Bool("json", false, "print a line of JSON for each client")
	flag.Parse()
	results, err := measure(strings.Split(*names, ","))
	if err != nil {
		log.Fatal("harm: ", err)
	}
	if err := write(results, *asJSON); err != nil {
		log.Fatal("harm: ", err)
	}
}

// measure runs all experiments with all clients. Those that wait run at the same time;
// what is counted in memory runs alone, after them.
func measure(names []string) ([]result, error) {
	results := make([]result, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		r := &results[i]
		r.Client = name
		if _, err := clients.New(name, nil, nil); err != nil {
			return nil, err
		}
		for _, e := range experiments {
			all.Go(func() { e(trial{name, r}) })
		}
	}
	all.Wait()
	plain := uploadAllocates("plain")
	for i := range results {
		r := &results[i]
		r.StreamExtra = (uploadAllocates(r.Client) - plain) >> 10
		r.NestedSends = nestedSends(r.Client)
	}
	return results, nil
}

func write(results []result, asJSON bool) error {
	if asJSON {
		lines := json.NewEncoder(os.Stdout)
		for _, r := range results {
			if err := lines.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "client\tearly\tshort bodies\tduplicates\tleaked\tuseless waits\tfailed\tstream KiB\tnested sends\t")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", r.Client, r.Early, r.ShortBodies, r.Duplicates, r.Leaked, r.UselessWaits, r.Failed, r.StreamExtra, r.NestedSends)
	}
	return t.Flush()
}
