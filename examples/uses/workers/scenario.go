package workers

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/quota/fleet"
)

// Scenario ships 3,000 orders with 20 processes of 5 goroutines each. A process is a client
// that shares nothing with the others but the bus.
func Scenario() scenario.Scenario {
	return scenario.Scenario{
		Name:  "workers",
		Calls: orders,
		API:   func(c *scenario.Counts) func(heedtest.Request) heedtest.Response { return newAPI(c).respond },
		Default: work(func(base http.RoundTripper, _ fleet.Bus) (*http.Client, func()) {
			return &http.Client{Transport: base}, func() {}
		}),
		Heed: work(func(base http.RoundTripper, bus fleet.Bus) (*http.Client, func()) {
			return NewClient(base, bus, []byte("the same in all processes"))
		}),
	}
}

const (
	processes, goroutines = 20, 5
	orders                = 3000
)

// packing returns how long it takes to pack an order: 0.5 to 1.5 s. If all took the same time, the processes would send
// their requests at the same instant, and the scheduler would decide which of them the API rejects.
func packing(order int) time.Duration {
	const spread = 1000 // ms
	return time.Second + time.Duration(order*617%spread-spread/2)*time.Millisecond
}

// work ships all orders. newClient returns the client of a process, and how it ends.
func work(newClient func(http.RoundTripper, fleet.Bus) (*http.Client, func())) scenario.Job {
	return func(ctx context.Context, base http.RoundTripper) int {
		var bus fleet.LocalBus
		queue := make(chan int, orders)
		for order := range orders {
			queue <- order
		}
		close(queue)
		var failed atomic.Int64
		var all sync.WaitGroup
		for range processes {
			all.Go(func() {
				client, stop := newClient(base, &bus)
				defer stop()
				failed.Add(int64(Work(ctx, client, goroutines, queue, func(order int) { time.Sleep(packing(order)) })))
			})
		}
		all.Wait()
		return int(failed.Load())
	}
}
