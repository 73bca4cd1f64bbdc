package queue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A request that may start when two limits grant it: 100 per second, and 10 at the same time.
// Each granted Ticket is ended once, with Report: when the work is done, or with the State Unused if
// it was not begun.
func ExampleQueue() {
	var q queue.Queue // shared by all callers of the same limits
	rate := throttle.NewTokenBucket(throttle.PerSecond(100))
	connections := throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 10})

	call := func(ctx context.Context, work func() error) error {
		var t queue.Ticket
		t.Add(throttle.Demand{Limiter: rate})
		t.Add(throttle.Demand{Limiter: connections})
		if err := q.Wait(ctx, &t); err != nil {
			return err
		}
		err := work()
		var f throttle.Feedback
		if err != nil {
			f.Outcome = throttle.Failed
		}
		q.Report(context.WithoutCancel(ctx), &t, f)
		return err
	}

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	fmt.Println(call(ctx, func() error { fmt.Println("working"); return nil }))
	// Output:
	// working
	// <nil>
}

// If the work was not started, the units are returned.
func ExampleQueue_Report() {
	ctx, clk := context.Background(), clock.NewMock()
	q := queue.Queue{Clock: clk}
	daily := throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 10, Align: throttle.EachDay})

	var t queue.Ticket
	t.Add(throttle.Demand{Limiter: daily, Cost: 4})
	if err := q.Wait(ctx, &t); err != nil {
		fmt.Println(err)
		return
	}
	d, _ := t.Decision(0)
	fmt.Println(d.Remaining, "left")

	q.Report(ctx, &t, throttle.Feedback{State: throttle.Unused})
	d, _ = daily.Reserve(ctx, throttle.Claim{Now: clk.Now(), DryRun: true})
	fmt.Println(d.Remaining, "left")
	// Output:
	// 6 left
	// 10 left
}
