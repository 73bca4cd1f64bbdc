package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// Three tokens, all of which are restored at each full minute.
func ExampleNewRefillBucket() {
	clk := clock.NewMock()
	bucket := throttle.WithClock(throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: throttle.PerMinute(3)}), clk)
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
