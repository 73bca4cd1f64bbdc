package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// A job that needs only this one limit takes its units in advance and sleeps until it may
// start, here for at most 300 ms.
func ExampleReserveAhead() {
	ctx, clk := context.Background(), clock.NewMock()
	l := throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: 10, Per: time.Second, Burst: 5}), clk)
	for _, cost := range []int64{5, 2, 4, 1} {
		d, _ := throttle.ReserveAhead(ctx, l, throttle.Claim{Cost: cost}, 300*time.Millisecond)
		if d.OK {
			fmt.Printf("%d units: start in %v\n", cost, d.Wait)
		} else {
			fmt.Printf("%d units: rejected, ask again in %v\n", cost, d.Wait)
		}
	}
	// Output:
	// 5 units: start in 0s
	// 2 units: start in 200ms
	// 4 units: rejected, ask again in 300ms
	// 1 units: start in 300ms
}
