package clients

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/bench/internal/simulation"
)

// Run makes n calls from c goroutines. It returns the number of calls that failed, which
// means an error or a status other than 200, and the total time.
func Run(client *http.Client, url string, n, c int) (failed int64, took time.Duration) {
	var next, failures atomic.Int64
	start := time.Now()
	var wg sync.WaitGroup
	for range c {
		wg.Go(func() {
			for next.Add(1) <= int64(n) {
				if !simulation.Get(context.Background(), client, url) {
					failures.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return failures.Load(), time.Since(start)
}
