package queue_test

import (
	"context"
	"fmt"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// At the end of a program, Drain rejects later callers and waits until the waiters are granted.
// Close rejects those that still wait when the context ends.
func ExampleQueue_Drain() {
	var q queue.Queue
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := q.Drain(ctx); err != nil {
		q.Close()
	}

	var t queue.Ticket
	t.Add(throttle.Demand{Limiter: throttle.AllowAll})
	fmt.Println(q.Wait(context.Background(), &t))
	// Output:
	// queue: closed
}
