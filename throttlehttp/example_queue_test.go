package throttlehttp_test

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// Early requests are delayed: one request per 10 ms, and at most two waiting requests.
func ExampleMiddleware_queue() {
	m := &throttlehttp.Middleware{
		Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 100, Per: time.Second, Burst: 1}),
		Queue:   &queue.Queue{MaxWait: time.Minute, MaxPerClass: 2},
	}
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	var all sync.WaitGroup
	var mu sync.Mutex
	served := 0
	for range 3 {
		all.Go(func() {
			if serve(h, "ann").Code == http.StatusOK {
				mu.Lock()
				served++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	fmt.Println(served, "served")
	// Output: 3 served
}
