package queue_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A call of a language model counts as one request and as some tokens. The ticket is granted
// when both limits grant it. Settle states the actual number of tokens.
func ExampleTicket_Settle() {
	ctx, clk := context.Background(), clock.NewMock()
	q := queue.Queue{Clock: clk}
	requests := throttle.NewTokenBucket(throttle.Limit{Name: "requests", Count: 500, Per: time.Minute})
	tokens := throttle.NewTokenBucket(throttle.Limit{Name: "tokens", Count: 30_000, Per: time.Minute})

	t := queue.Ticket{Demands: []throttle.Demand{
		{Limiter: requests},
		{Limiter: tokens, Cost: 4000}, // the maximum
	}}
	if err := q.Wait(ctx, &t); err != nil {
		fmt.Println(err)
		return
	}
	for i := range 2 {
		d, _ := t.Decision(i)
		fmt.Println(d.Remaining, d.Policy, "left")
	}
	t.Settle(1, 1250)
	q.Report(ctx, &t, throttle.Feedback{})

	d, _ := tokens.Reserve(ctx, throttle.Claim{Now: clk.Now(), DryRun: true})
	fmt.Println(d.Remaining, d.Policy, "left")
	// Output:
	// 499 requests left
	// 26000 tokens left
	// 28750 tokens left
}

// Reserve claims all demands without a Queue and without waiting. If one limit rejects, nothing
// is taken from the others.
func ExampleTicket_Reserve() {
	ctx, now := context.Background(), time.Unix(0, 0)
	perSecond := throttle.NewTokenBucket(throttle.Limit{Name: "per second", Count: 5, Per: time.Second})
	perDay := throttle.NewTokenBucket(throttle.Limit{Name: "per day", Count: 1, Per: 24 * time.Hour})
	for range 2 {
		var t queue.Ticket
		t.Add(throttle.Demand{Limiter: perSecond})
		t.Add(throttle.Demand{Limiter: perDay})
		d, err := t.Reserve(ctx, now)
		if err != nil {
			fmt.Println(err)
			return
		}
		if d.OK {
			fmt.Println("granted")
		} else {
			fmt.Printf("rejected by %q, ask again in %v\n", d.Policy, d.Wait)
		}
	}
	d, _ := perSecond.Reserve(ctx, throttle.Claim{Now: now, DryRun: true})
	fmt.Println(d.Remaining, "of", d.Limit, "left", d.Policy)
	// Output:
	// granted
	// rejected by "per day", ask again in 24h0m0s
	// 4 of 5 left per second
}
