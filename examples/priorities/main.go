// Priorities shows the order of requests that share the quota of one API: interactive
// requests before batch jobs, and customers in turn, however many requests one of them has
// in the queue. An exhausted limit delays only the requests that need it.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A callGroup is a group of calls that are made at the same time.
type callGroup struct {
	name, path, customer string
	calls, priority      int
}

// scenarios are the groups of calls to compare. The calls of the first group start first.
var scenarios = []struct {
	title  string
	groups []callGroup
}{
	{"People go before batch jobs, by priority:", []callGroup{
		{name: "batch job", calls: 60, path: "/items"},
		{name: "a person", calls: 5, path: "/items", priority: 1},
	}},
	{"Each customer has half of the quota, until one needs no more:", []callGroup{
		{name: "large customer", calls: 60, path: "/items", customer: "large"},
		{name: "small customer", calls: 10, path: "/items", customer: "small"},
	}},
	{"Searches have a limit of their own besides, and hold up nobody else:", []callGroup{
		{name: "searches", calls: 5, path: "/search"},
		{name: "items", calls: 40, path: "/items"},
	}},
}

func main() {
	for _, s := range scenarios {
		fmt.Println(s.title)
		run(os.Stdout, s.groups)
	}
}

// run makes all calls with one client and prints when the last response of each group arrived.
func run(out io.Writer, groups []callGroup) {
	core := throttle.NewTokenBucket(throttle.Limit{Name: "50 requests a second", Count: 50, Per: time.Second, Burst: 1})
	search := throttle.NewTokenBucket(throttle.Limit{Name: "2 searches a second", Count: 2, Per: time.Second, Burst: 1})
	client := heed.NewClient(&heed.Transport{Base: api{}, Limits: func(r *http.Request, t *queue.Ticket) error {
		t.Tenant = r.Header.Get("Customer")
		t.Add(throttle.Demand{Limiter: core})
		if r.URL.Path == "/search" {
			t.Add(throttle.Demand{Limiter: search})
		}
		return nil
	}})
	start, took := time.Now(), make([]time.Duration, len(groups))
	var all sync.WaitGroup
	for i, c := range groups {
		all.Go(func() {
			c.callAll(client)
			took[i] = time.Since(start)
		})
		time.Sleep(10 * time.Millisecond)
	}
	all.Wait()
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for i, c := range groups {
		fmt.Fprintf(t, "   %s\t%d calls\tlast answer after %.2f s\n", c.name, c.calls, took[i].Seconds())
	}
	t.Flush()
}
