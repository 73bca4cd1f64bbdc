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

// While Max keys are in use, the Overflow limits all new keys together, so that a client cannot
// get more by using many keys. Len never exceeds Max.
func ExampleLimiter_overflow() {
	clk := clock.NewMock()
	l := &keyed.Limiter{
		Max:   2,
		Clock: clk,
		New: func(string) throttle.Limiter {
			return throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Name: "per key", Count: 5, Per: time.Second}), clk)
		},
		Overflow: throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Name: "new keys", Count: 1, Per: time.Second}), clk),
	}
	for _, key := range []string{"ann", "bob", "eve-1", "eve-2"} {
		d, _ := l.Reserve(context.Background(), throttle.Claim{Key: key})
		fmt.Printf("%-5s %-5v left %d of %d, overflow %v\n", key, d.OK, d.Remaining, d.Limit, d.Degraded)
	}
	clk.Add(time.Second) // the limiters of ann and bob are full again and can be replaced
	d, _ := l.Reserve(context.Background(), throttle.Claim{Key: "eve-3"})
	fmt.Printf("eve-3 %-5v left %d of %d, overflow %v\n", d.OK, d.Remaining, d.Limit, d.Degraded)
	fmt.Println(l.Len(), "keys")
	// Output:
	// ann   true  left 4 of 5, overflow false
	// bob   true  left 4 of 5, overflow false
	// eve-1 true  left 0 of 1, overflow true
	// eve-2 false left 0 of 1, overflow true
	// eve-3 true  left 4 of 5, overflow false
	// 2 keys
}
