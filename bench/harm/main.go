// Harm counts the harm that clients with retries cause to servers and callers in case of
// errors: our client, and those of other libraries, configured as in their documentation.
// The ideal is 0 for every number.
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

// A result counts the harm caused by one client.
type result struct {
	Client      string `json:"client"`
	Early       int    `json:"early"`        // requests sent before the time in Retry-After
	ShortBodies int    `json:"short_bodies"` // requests that arrived with an incomplete body
	Duplicates  int    `json:"duplicates"`   // POSTs that were retried although they may have been processed
	Leaked      int    `json:"leaked"`       // response bodies that were not closed
	// calls that waited although success before the deadline, or within an hour, was
	// impossible
	UselessWaits int `json:"useless_waits"`
	// calls without a successful response although a later retry would have succeeded
	Failed int `json:"failed"`

	StreamExtra int64 `json:"stream_extra_kib"` // allocated for an upload of 64 MiB, beyond a plain client
	// requests of a call through three nested clients with three attempts each; 0: not run,
	// because it would take minutes
	NestedSends int `json:"nested_sends"`
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

// measure runs all experiments with all clients. Experiments that wait run concurrently;
// those that measure memory run alone, after them.
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
