package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// Tests and simulations use limiters with a clock of their own. No time passes.
func ExampleWithClock() {
	clk := clock.NewMock()
	l := throttle.WithClock(throttle.NewTokenBucket(throttle.PerMinute(1)), clk)
	for range 3 {
		d, _ := l.Reserve(context.Background(), throttle.Claim{})
		fmt.Println(d.OK, d.Wait)
		clk.Add(40 * time.Second)
	}
	// Output:
	// true 0s
	// false 20s
	// true 0s
}
