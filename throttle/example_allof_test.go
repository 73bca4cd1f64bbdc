package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// Many APIs have a limit per second and one per minute. A claim takes units from both or
// from none.
func ExampleAllOf() {
	clk := clock.NewMock()
	l := throttle.AllOf(
		throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Name: "per second", Count: 2, Per: time.Second}), clk),
		throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Name: "per minute", Count: 6, Per: time.Minute, Burst: 3}), clk),
	)
	for range 5 {
		d, _ := l.Reserve(context.Background(), throttle.Claim{})
		fmt.Printf("%4dms  %-5v  %d left %s  again in %v\n", clk.Now().UnixMilli(), d.OK, d.Remaining, d.Policy, d.Wait)
		clk.Add(300 * time.Millisecond)
	}
	// Output:
	//    0ms  true   1 left per second  again in 0s
	//  300ms  true   0 left per second  again in 0s
	//  600ms  true   0 left per second  again in 0s
	//  900ms  false  0 left per minute  again in 9.1s
	// 1200ms  false  0 left per minute  again in 8.8s
}
