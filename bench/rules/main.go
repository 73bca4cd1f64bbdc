// Rules measures the cost of finding the limits of a request in a file, and of passing
// them, with 10, 100, 1,000 and 10,000 rules: half of them descriptors with a value, half
// of them patterns of host, method and path. Each request matches four rules.
//
//	go run ./rules -json
//
// Requests use rules from all parts of the file. The sizes are measured in alternation, so
// that other load on the machine affects all of them.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/bench/internal/heap"
	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A row holds the figures of one size. Times are nanoseconds per request, the median of all
// rounds.
type row struct {
	Rules   int     `json:"rules"`
	LoadMs  float64 `json:"load_ms"`
	Find    float64 `json:"find_ns"`
	Pass    float64 `json:"pass_ns"` // finding and passing the limits
	Allocs  float64 `json:"allocs"`  // for both
	HeapKiB int64   `json:"heap_kib"`
	Growth  float64 `json:"growth"` // of Find, relative to the smallest size
}

func main() {
	rounds := flag.Int("rounds", 15, "rounds in which every size is measured")
	asJSON := flag.Bool("json", false, "print lines of JSON")
	flag.Parse()
	var files []*ruleFile
	for _, n := range []int{10, 100, 1000, 10_000} {
		files = append(files, newFile(n))
	}
	for range *rounds {
		for _, f := range files {
			f.find = append(f.find, f.measure(f.findLimits))
			f.pass = append(f.pass, f.measure(f.passLimits))
		}
	}
	for _, f := range files {
		show(f.row(files[0]), *asJSON)
	}
}

// A ruleFile is a set of rules and the requests that match them.
type ruleFile struct {
	n          int
	set        *rules.Set
	loaded     time.Duration
	heap       int64
	requests   []*http.Request
	find, pass []float64
}

const requests = 512

func newFile(n int) *ruleFile {
	text, before, start := []byte(text(n)), heap.InUse(), time.Now()
	set, err := rules.Parse(text, rules.Config{})
	if err != nil {
		log.Fatal(err)
	}
	f := &ruleFile{n: n, set: set, loaded: time.Since(start)}
	f.heap = heap.InUse() - before
	for i := range requests {
		k := i * 7919 % (n / 2)
		r, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://h%d.example.com/a/%d/b%d", k%7, i, k), nil)
		if err != nil {
			log.Fatal(err)
		}
		r.Header.Set("X-User", fmt.Sprintf("u%d", k))
		r.RemoteAddr = "192.0.2.1:1234"
		f.requests = append(f.requests, r)
	}
	return f
}

// text returns the text of n rules.
func text(n int) string {
	var b strings.Builder
	const amount = "rate_limit: {unit: second, requests_per_unit: 1000000000, algorithm: token_bucket}"
	fmt.Fprintf(&b, "domain: bench\nvalues: {user: {header: X-User}}\ndescriptors:\n- {key: remote_address, %s}\n", amount)
	for i := range n / 2 {
		fmt.Fprintf(&b, "- {key: user, value: u%d, %s}\n", i, amount)
	}
	fmt.Fprintf(&b, "limits:\n- {name: all, match: /, %s}\n", amount)
	for i := range n / 2 {
		fmt.Fprintf(&b, "- name: n%d\n  match: GET h%d.example.com/a/{id}/b%d\n  key: user\n  %s\n", i, i%7, i, amount)
	}
	return b.String()
}

// findLimits finds the limits of one request.
func (f *ruleFile) findLimits(r *http.Request, t *queue.Ticket) {
	if err := f.set.Limits(r, t); err != nil {
		log.Fatal(err)
	}
}

// passLimits finds the limits of one request and passes them.
func (f *ruleFile) passLimits(r *http.Request, t *queue.Ticket) {
	ctx := r.Context()
	f.findLimits(r, t)
	if d, err := t.Reserve(ctx, time.Time{}); err != nil || !d.OK {
		log.Fatal("rules: a request was rejected that should not be: ", d, err)
	}
	t.Report(ctx, throttle.Feedback{})
}

// measure returns the duration of an operation.
func (f *ruleFile) measure(do func(*http.Request, *queue.Ticket)) float64 {
	const turns = 20
	ticket, start := new(queue.Ticket), time.Now()
	for range turns {
		for _, r := range f.requests {
			*ticket = queue.Ticket{}
			do(r, ticket)
		}
	}
	return float64(time.Since(start)) / (turns * requests)
}

func (f *ruleFile) row(smallest *ruleFile) row {
	l := row{Rules: f.n, LoadMs: float64(f.loaded.Microseconds()) / 1000, Find: median(f.find), Pass: median(f.pass), HeapKiB: f.heap >> 10}
	l.Growth = l.Find / median(smallest.find)
	l.Allocs = f.allocs()
	return l
}

// allocs returns the number of allocations of one request that passes.
func (f *ruleFile) allocs() float64 {
	var before, after runtime.MemStats
	ticket := new(queue.Ticket)
	runtime.ReadMemStats(&before)
	for _, r := range f.requests {
		*ticket = queue.Ticket{}
		f.findLimits(r, ticket)
		_, _ = ticket.Reserve(context.Background(), time.Time{})
		ticket.Report(context.Background(), throttle.Feedback{})
	}
	runtime.ReadMemStats(&after)
	return float64((after.Mallocs - before.Mallocs) / requests)
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

func show(l row, asJSON bool) {
	if asJSON {
		if err := json.NewEncoder(os.Stdout).Encode(l); err != nil {
			log.Fatal(err)
		}
		return
	}
	fmt.Printf("%6d rules: %4.0f ns to find four limits (%.2f of the smallest file), %5.0f ns to pass them, %.0f allocations; %d KiB, loaded in %.1f ms\n",
		l.Rules, l.Find, l.Growth, l.Pass, l.Allocs, l.HeapKiB, l.LoadMs)
}
