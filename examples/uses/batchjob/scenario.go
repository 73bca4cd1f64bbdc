package batchjob

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// Scenario bills 2,000 customers, in a process that ends after 2 seconds, one that ends after
// 4 seconds, and one that finishes the job. The default is a loop with an http.Client, which
// begins with the first customer.
func Scenario() scenario.Scenario {
	customers := make([]string, 2000)
	for i := range customers {
		customers[i] = strconv.Itoa(i)
	}
	return scenario.Scenario{
		Name:  "batch job",
		Calls: len(customers),
		API:   func(c *scenario.Counts) func(heedtest.Request) heedtest.Response { return newAPI(c).respond },
		Default: func(ctx context.Context, base http.RoundTripper) int {
			var billed sync.Map
			interrupted(ctx, func(ctx context.Context) { billAll(ctx, &http.Client{Transport: base}, customers, &billed) })
			failed := len(customers)
			billed.Range(func(any, any) bool { failed--; return true })
			return failed
		},
		Heed: func(ctx context.Context, base http.RoundTripper) int {
			dir, err := os.MkdirTemp("", "batchjob")
			if err != nil {
				return len(customers)
			}
			defer os.RemoveAll(dir)
			done := 0
			interrupted(ctx, func(ctx context.Context) {
				report, _ := Bill(ctx, NewClient(base), customers, filepath.Join(dir, "checkpoint"), io.Discard)
				done = report.Done
			})
			return len(customers) - done
		},
	}
}

// interrupted calls process three times, and ends the first two.
func interrupted(ctx context.Context, process func(context.Context)) {
	for _, lifetime := range []time.Duration{2 * time.Second, 4 * time.Second} {
		short, cancel := context.WithTimeout(ctx, lifetime)
		process(short)
		cancel()
	}
	process(ctx)
}

// billAll creates all invoices with 20 goroutines, and adds the customers whose invoice was
// created to billed.
func billAll(ctx context.Context, client *http.Client, customers []string, billed *sync.Map) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(customers)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if createInvoice(ctx, client, customers[i]) == nil {
					billed.Store(customers[i], true)
				}
			}
		})
	}
	all.Wait()
}
