package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// At most 100 units in any minute, estimated from the counts of two windows. Half of the
// units of the previous window count when half of the current one is over.
func ExampleNewSlidingCounter() {
	clk := clock.NewMock()
	l := throttle.WithClock(throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: throttle.PerMinute(100)}), clk)
	l.Reserve(context.Background(), throttle.Claim{Cost: 80})

	clk.Add(90 * time.Second)
	for _, cost := range []int64{60, 10} {
		d, _ := l.Reserve(context.Background(), throttle.Claim{Cost: cost})
		fmt.Printf("%d: %-5v %d left, again in %v\n", cost, d.OK, d.Remaining, d.Wait)
	}
	// Output:
	// 60: true  0 left, again in 0s
	// 10: false 0 left, again in 7.5s
}

// With Parts, the last sub-windows are counted one by one, and nothing is estimated: at most
// 100 units in any six consecutive parts of ten seconds.
func ExampleSlidingCounterConfig_parts() {
	clk := clock.NewMock()
	l := throttle.WithClock(throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: throttle.PerMinute(100), Parts: 6}), clk)
	l.Reserve(context.Background(), throttle.Claim{Cost: 80})

	for range 3 {
		d, _ := l.Reserve(context.Background(), throttle.Claim{Cost: 50})
		fmt.Printf(":%02d %-5v %d left, again in %v\n", clk.Now().Unix(), d.OK, d.Remaining, d.Wait)
		clk.Add(30 * time.Second)
	}
	// Output:
	// :00 false 20 left, again in 1m0s
	// :30 false 20 left, again in 30s
	// :60 true  50 left, again in 0s
}
