package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// Five searches per second, with a burst of two.
func ExampleNewTokenBucket() {
	clk := clock.NewMock()
	l := throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Name: "search", Count: 5, Per: time.Second, Burst: 2}), clk)
	for range 6 {
		d, _ := l.Reserve(context.Background(), throttle.Claim{})
		fmt.Printf("%3dms  %-5v  left %d  again in %v\n", clk.Now().UnixMilli(), d.OK, d.Remaining, d.Wait)
		clk.Add(50 * time.Millisecond)
	}
	// Output:
	//   0ms  true   left 1  again in 0s
	//  50ms  true   left 0  again in 0s
	// 100ms  false  left 0  again in 100ms
	// 150ms  false  left 0  again in 50ms
	// 200ms  true   left 0  again in 0s
	// 250ms  false  left 0  again in 150ms
}

// If the cost of a call is known only afterwards, claim the maximum cost and report the
// actual one.
func ExampleNewTokenBucket_report() {
	ctx, clk := context.Background(), clock.NewMock()
	l := throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Name: "tokens", Count: 1000, Per: time.Minute}), clk)

	claim := throttle.Claim{Cost: 800}
	d, _ := l.Reserve(ctx, claim)
	fmt.Println("claimed:", d.Remaining, "left")

	l.Report(ctx, claim, d, throttle.Feedback{Cost: 300})
	d, _ = l.Reserve(ctx, throttle.Claim{DryRun: true})
	fmt.Println("settled:", d.Remaining, "left")
	// Output:
	// claimed: 200 left
	// settled: 700 left
}

// The limit of a bucket changes while it is in use. Its units are kept.
func ExampleNewTokenBucket_setLimit() {
	ctx, clk := context.Background(), clock.NewMock()
	l := throttle.WithClock(throttle.NewTokenBucket(throttle.PerMinute(60)), clk)
	l.Reserve(ctx, throttle.Claim{Cost: 50})

	if err := l.SetLimit(throttle.PerMinute(30)); err != nil {
		fmt.Println(err)
	}
	d, _ := l.Reserve(ctx, throttle.Claim{Cost: 20})
	fmt.Printf("%q: %d left, 20 in %v\n", d.Policy, d.Remaining, d.Wait)
	// Output:
	// "30 per 1m0s": 10 left, 20 in 20s
}
