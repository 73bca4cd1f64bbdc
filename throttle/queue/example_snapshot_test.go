package queue_test

import (
	"context"
	"fmt"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A Snapshot shows what callers wait for, for metrics or a debug page.
func ExampleQueue_Snapshot() {
	waiting := make(chan struct{})
	q := queue.Queue{Trace: &queue.Trace{Queued: func(*queue.Ticket, queue.ClassSnapshot) { close(waiting) }}}
	one := throttle.Demand{Limiter: throttle.NewConcurrency(throttle.ConcurrencyConfig{Name: "connections", Count: 1})}
	ctx, cancel := context.WithCancel(context.Background())

	first, second := queue.Ticket{Tenant: "ann"}, queue.Ticket{Tenant: "bob"}
	first.Add(one)
	second.Add(one)
	if err := q.Wait(ctx, &first); err != nil {
		fmt.Println(err)
	}
	ended := make(chan error)
	go func() { ended <- q.Wait(ctx, &second) }()
	<-waiting

	s := q.Snapshot()
	for _, c := range s.Classes {
		fmt.Printf("%d of %d waiting: tenant %s, for %s\n", c.Waiting, s.Waiting, c.Tenant, c.Limit)
	}
	cancel()
	<-ended
	// Output:
	// 1 of 1 waiting: tenant bob, for connections
}
