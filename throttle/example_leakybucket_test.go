package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// Claims made at the same time are spread: each Decision states when the work may start.
func ExampleNewLeakyBucket() {
	clk := clock.NewMock()
	bucket := throttle.WithClock(throttle.NewLeakyBucket(throttle.LeakyBucketConfig{Limit: throttle.Limit{Count: 10, Per: time.Second, Burst: 1}, Queue: 2}), clk)
	for range 4 {
		d, _ := throttle.ReserveAhead(context.Background(), bucket, throttle.Claim{}, time.Minute)
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
