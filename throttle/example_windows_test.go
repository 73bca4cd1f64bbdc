package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// A quota that resets at midnight in Berlin, on the day that has 25 hours.
func ExampleNewFixedWindow() {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		fmt.Println(err)
		return
	}
	clk := clock.NewMock()
	clk.Set(time.Date(2026, 10, 25, 0, 0, 0, 0, berlin))
	quota := throttle.NewFixedWindow(throttle.Quota{Count: 200, Anchor: throttle.EachDay, Zone: berlin}, clk)
	for _, cost := range []int64{150, 60} {
		d, _ := quota.Reserve(context.Background(), throttle.Claim{Cost: cost})
		fmt.Printf("%d: %v, %d left, again in %v\n", cost, d.OK, d.Remaining, d.Wait)
	}
	// Output:
	// 150: true, 50 left, again in 0s
	// 60: false, 50 left, again in 25h0m0s
}

// Claims that come at once are spread: each is told when to act.
func ExampleNewLeakyBucket() {
	clk := clock.NewMock()
	bucket := throttle.NewLeakyBucket(throttle.Leak{Limit: throttle.Limit{Count: 10, Per: time.Second, Burst: 1}, Queue: 2}, clk)
	for range 4 {
		d, _ := bucket.Reserve(context.Background(), throttle.Claim{MaxWait: time.Minute})
		if d.OK {
			fmt.Println("act in", d.Wait)
		} else {
			fmt.Println("the queue is full, ask again in", d.Wait)
		}
	}
	// Output:
	// act in 0s
	// act in 100ms
	// act in 200ms
	// the queue is full, ask again in 100ms
}

// Three tokens, all of them back at each full minute.
func ExampleNewRefillBucket() {
	clk := clock.NewMock()
	bucket := throttle.NewRefillBucket(throttle.Refill{Limit: throttle.PerMinute(3)}, clk)
	for _, second := range []time.Duration{0, 10, 35, 45} {
		clk.Set(time.Unix(0, 0).Add(second * time.Second))
		d, _ := bucket.Reserve(context.Background(), throttle.Claim{})
		fmt.Printf(":%02d %-5v again in %v\n", second, d.OK, d.Wait)
	}
	// Output:
	// :00 true  again in 0s
	// :10 true  again in 0s
	// :35 true  again in 0s
	// :45 false again in 15s
}
