package queue_test

import (
	"context"
	"fmt"
	"sync"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// Of the tickets of one tenant, those with a higher priority are granted first. The others are
// delayed by at most Queue.Aging for each step of priority.
func ExampleTicket_priority() {
	runInOrder([]namedTicket{
		{"nightly report", queue.Ticket{Priority: -1}},
		{"page view", queue.Ticket{}},
		{"payment", queue.Ticket{Priority: 1}},
	})
	// Output:
	// payment
	// page view
	// nightly report
}

// Tenants share a limit fairly: bob does not wait for all requests of ann that arrived before.
func ExampleTicket_tenant() {
	runInOrder([]namedTicket{
		{"ann 1", queue.Ticket{Tenant: "ann"}},
		{"ann 2", queue.Ticket{Tenant: "ann"}},
		{"ann 3", queue.Ticket{Tenant: "ann"}},
		{"bob 1", queue.Ticket{Tenant: "bob"}},
	})
	// Output:
	// ann 1
	// bob 1
	// ann 2
	// ann 3
}

// A tenant with a weight of 2 gets twice as much as one with a weight of 1.
func ExampleTicket_weight() {
	runInOrder([]namedTicket{
		{"free 1", queue.Ticket{Tenant: "free"}},
		{"free 2", queue.Ticket{Tenant: "free"}},
		{"paid 1", queue.Ticket{Tenant: "paid", Weight: 2}},
		{"paid 2", queue.Ticket{Tenant: "paid", Weight: 2}},
		{"paid 3", queue.Ticket{Tenant: "paid", Weight: 2}},
		{"paid 4", queue.Ticket{Tenant: "paid", Weight: 2}},
	})
	// Output:
	// paid 1
	// free 1
	// paid 2
	// paid 3
	// free 2
	// paid 4
}

type namedTicket struct {
	name   string
	ticket queue.Ticket
}

// runInOrder lets the tickets wait for a limit that is in use, in the given order, and prints
// their names in the order in which they are granted.
func runInOrder(tickets []namedTicket) {
	ctx := context.Background()
	queued := make(chan struct{})
	q := queue.Queue{Trace: &queue.Trace{Queued: func(*queue.Ticket, queue.ClassSnapshot) { queued <- struct{}{} }}}
	one := throttle.Demand{Limiter: throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})}

	var busy queue.Ticket
	busy.Add(one)
	if err := q.Wait(ctx, &busy); err != nil {
		fmt.Println(err)
		return
	}
	var wg sync.WaitGroup
	for i := range tickets {
		t := &tickets[i]
		t.ticket.Add(one)
		wg.Go(func() {
			if err := q.Wait(ctx, &t.ticket); err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println(t.name)
			q.Report(ctx, &t.ticket, throttle.Feedback{})
		})
		<-queued
	}
	q.Report(ctx, &busy, throttle.Feedback{})
	wg.Wait()
}
