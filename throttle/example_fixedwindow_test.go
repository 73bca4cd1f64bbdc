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
	quota := throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 200, Align: throttle.EachDay, Zone: berlin}), clk)
	for _, cost := range []int64{150, 60} {
		d, _ := quota.Reserve(context.Background(), throttle.Claim{Cost: cost})
		fmt.Printf("%d: %v, %d left, again in %v\n", cost, d.OK, d.Remaining, d.Wait)
	}
	// Output:
	// 150: true, 50 left, again in 0s
	// 60: false, 50 left, again in 25h0m0s
}

// Permits per period: unused permits are lost, and all are available again at the start of
// a period. Periods are counted from the creation of the limiter.
func ExampleFixedWindowConfig() {
	clk := clock.NewMock()
	permits := throttle.WithClock(throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 3, Per: time.Second, Align: throttle.AtCreation}), clk)
	for _, cost := range []int64{2, 2, 1} {
		d, _ := permits.Reserve(context.Background(), throttle.Claim{Cost: cost})
		fmt.Printf("%d: %-5v %d left, again in %v\n", cost, d.OK, d.Remaining, d.Wait)
		clk.Add(400 * time.Millisecond)
	}
	clk.Add(time.Second)
	d, _ := permits.Reserve(context.Background(), throttle.Claim{Cost: 3})
	fmt.Println("a period later:", d.OK)
	// Output:
	// 2: true  1 left, again in 0s
	// 2: false 1 left, again in 600ms
	// 1: true  0 left, again in 0s
	// a period later: true
}
