package keyed_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// Guests are limited to two requests per second, members to five.
func ExampleLimiter() {
	clk := clock.NewMock()
	members := map[string]bool{"ann": true}
	l := &keyed.Limiter{
		Max:   100_000,
		Clock: clk,
		New: func(key string) throttle.Limiter {
			if members[key] {
				return throttle.WithClock(throttle.NewTokenBucket(throttle.PerSecond(5)), clk)
			}
			return throttle.WithClock(throttle.NewTokenBucket(throttle.PerSecond(2)), clk)
		},
	}
	for _, key := range []string{"ann", "bob", "bob", "bob", "ann"} {
		d, _ := l.Reserve(context.Background(), throttle.Claim{Key: key})
		fmt.Printf("%s: %-5v  left %d of %d\n", key, d.OK, d.Remaining, d.Limit)
	}
	// Output:
	// ann: true   left 4 of 5
	// bob: true   left 1 of 2
	// bob: true   left 0 of 2
	// bob: false  left 0 of 2
	// ann: true   left 3 of 5
}

// A million keys with the same limit, in 26 MB.
func ExampleBuckets() {
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
