package keyed_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// A million keys with the same limit, in 26 MB.
func ExampleNewBuckets() {
	clk := clock.NewMock()
	l := throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{
		Limit: throttle.Limit{Name: "per client", Count: 10, Per: time.Second, Burst: 2},
		Max:   1_000_000,
	}), clk)
	for range 3 {
		d, _ := l.Reserve(context.Background(), throttle.Claim{Key: "192.0.2.7"})
		fmt.Println(d.OK, d.Remaining, d.Wait)
	}
	// Output:
	// true 1 0s
	// true 0 0s
	// false 0 100ms
}
