package queue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A caller learns its position when it begins to wait, and decides to leave.
func ExampleQueue_WaitHooks() {
	var q queue.Queue
	limit := throttle.NewTokenBucket(throttle.Limit{Name: "reports", Count: 1, Per: time.Hour})
	newTicket := func() *queue.Ticket {
		return &queue.Ticket{Demands: []throttle.Demand{{Limiter: limit}}}
	}
	if err := q.Wait(context.Background(), newTicket()); err != nil {
		fmt.Println(err)
		return
	}
	err := q.WaitHooks(context.Background(), newTicket(), queue.Hooks{Queued: func(p queue.Position) error {
		wait := p.ExpectedEnd.Sub(p.At).Round(time.Minute)
		fmt.Printf("waits for %s, %d ahead, about %v\n", p.Limit, p.Ahead, wait)
		if wait > time.Minute {
			return errors.New("the report is needed sooner")
		}
		return nil
	}})
	fmt.Println(err)
	// Output:
	// waits for reports, 0 ahead, about 1h0m0s
	// the report is needed sooner
}
