package queue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A wait that would be longer than MaxWait ends immediately with an error. The error states
// when the limit would have granted the ticket.
func ExampleQueue_maxWait() {
	q := queue.Queue{MaxWait: 5 * time.Second, Clock: clock.NewMock()}
	perMinute := throttle.NewTokenBucket(throttle.Limit{Name: "reports", Count: 1, Per: time.Minute})

	for range 2 {
		var t queue.Ticket
		t.Add(throttle.Demand{Limiter: perMinute})
		err := q.Wait(context.Background(), &t)
		var rejected *throttle.RejectedError
		if errors.As(err, &rejected) {
			fmt.Printf("rejected by %q, possible in %v\n", rejected.Decision.Policy, rejected.Decision.Wait)
			continue
		}
		fmt.Println("granted:", err == nil)
	}
	// Output:
	// granted: true
	// rejected by "reports", possible in 1m0s
}

// MaxTotal bounds the number of waiters. Further callers are rejected immediately. MaxPerClass
// is the bound for the callers of one tenant that need the same limits.
func ExampleQueue_maxTotal() {
	waiting := make(chan struct{})
	q := queue.Queue{
		MaxTotal: 1,
		Trace:    &queue.Trace{Queued: func(*queue.Ticket, queue.ClassSnapshot) { close(waiting) }},
	}
	one := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})
	ctx, cancel := context.WithCancel(context.Background())

	var first, second, third queue.Ticket
	for _, t := range []*queue.Ticket{&first, &second, &third} {
		t.Add(throttle.Demand{Limiter: one})
	}
	fmt.Println("first: ", q.Wait(ctx, &first))
	ended := make(chan error)
	go func() { ended <- q.Wait(ctx, &second) }()
	<-waiting

	err := q.Wait(ctx, &third)
	fmt.Println("third: ", err)
	fmt.Println("       ", errors.Is(err, throttle.ErrRejected))

	cancel() // the second caller stops waiting
	fmt.Println("second:", <-ended)
	// Output:
	// first:  <nil>
	// third:  queue: full: 1 callers wait already and the limit is 1: ask again later
	//         true
	// second: context canceled
}
