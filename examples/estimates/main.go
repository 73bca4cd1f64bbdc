// Estimates shows how a Transport treats two servers that do not state their limits: a
// healthy one that fails 5 % of its requests with a bare 503, and one that rejects more
// than 20 requests a second with a bare 429. Calls to the first never wait. The rate of
// the second is learned, because the Mode of the Tracker is quota.Full. docs/server-limits.md explains the names that are printed.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/throttle"
)

// A scenario is a server and the calls made to it.
type scenario struct {
	title   string
	respond func() func(heedtest.Request) heedtest.Response
	calls   int
	workers int
}

var scenarios = []scenario{
	{"healthy, 5 % are a bare 503", healthy, 400, 4},
	{"bare 429 above 20 a second", limited, 100, 20},
}

// healthy fails the first request for every 20th item.
func healthy() func(heedtest.Request) heedtest.Response {
	var failed sync.Map
	return func(r heedtest.Request) heedtest.Response {
		a := heedtest.Response{Delay: 10 * time.Millisecond}
		item, err := strconv.Atoi(path.Base(r.URL))
		if _, again := failed.LoadOrStore(r.URL, true); err == nil && item%20 == 0 && !again {
			a.Status = http.StatusServiceUnavailable
		}
		return a
	}
}

// limited accepts 20 requests a second, with a burst of 20.
func limited() func(heedtest.Request) heedtest.Response {
	limit := throttle.NewTokenBucket(throttle.PerSecond(20))
	return func(heedtest.Request) heedtest.Response {
		a := heedtest.Response{Delay: 10 * time.Millisecond}
		if d, err := limit.Reserve(context.Background(), throttle.Claim{}); err != nil || !d.OK {
			a.Status = http.StatusTooManyRequests
		}
		return a
	}
}

func main() {
	asJSON := flag.Bool("json", false, "print a line of JSON for each server instead of tables")
	flag.Parse()
	if err := runScenarios(os.Stdout, *asJSON, (*heedtest.Server).Start); err != nil {
		log.Fatal("estimates: ", err)
	}
}

// runScenarios runs all scenarios, each with a new server, which start starts.
func runScenarios(out io.Writer, asJSON bool, start func(*heedtest.Server)) error {
	var results []result
	for _, s := range scenarios {
		server := &heedtest.Server{Respond: s.respond()}
		start(server)
		results = append(results, s.run(server))
		server.Close()
	}
	if asJSON {
		lines := json.NewEncoder(out)
		for _, r := range results {
			if err := lines.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	return write(out, results)
}

// write prints a table of the results, and the events.
func write(out io.Writer, results []result) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "server\tcalls\tfailed\tsent\trejected\twaited\tlongest\ttime\t")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%.2f s\t%.2f s\t\n", r.Server, r.Calls, r.Failed, r.Sent, r.Rejected, r.waited(), r.Longest, r.Elapsed)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		fmt.Fprintf(out, "\n%s\n", r.Server)
		if len(r.Waited) == 0 {
			fmt.Fprintln(out, "  no call waited")
		}
		for _, name := range r.names() {
			fmt.Fprintf(out, "  %d calls waited longest for %q\n", r.Waited[name], name)
		}
		for _, e := range r.Events {
			fmt.Fprintf(out, "  after %.2f s: %s\n", e.After, e.What)
		}
	}
	return nil
}

// names returns the names of the limits that calls waited for, in alphabetical order.
func (r *result) names() []string {
	var names []string
	for name := range r.Waited {
		names = append(names, name)
	}
	slices.SortFunc(names, strings.Compare)
	return names
}

// waited returns the number of calls that waited.
func (r *result) waited() (n int) {
	for _, calls := range r.Waited {
		n += calls
	}
	return n
}
