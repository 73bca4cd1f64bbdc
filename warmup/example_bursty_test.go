package warmup_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// NewBursty configured like RateLimiter.create(5) of Guava: one second of idle time is saved,
// and the first claim never waits.
func ExampleNewBursty() {
	clk := clock.NewMock()
	l := throttle.WithClock(warmup.NewBursty(warmup.BurstyConfig{Limit: throttle.PerSecond(5)}), clk)
	clk.Add(time.Minute)
	for range 8 {
		d, _ := throttle.ReserveAhead(context.Background(), l, throttle.Claim{}, time.Second)
		fmt.Printf("acts after %v, %d left\n", d.Wait, d.Remaining)
	}
	// Output:
	// acts after 0s, 5 left
	// acts after 0s, 4 left
	// acts after 0s, 3 left
	// acts after 0s, 2 left
	// acts after 0s, 1 left
	// acts after 0s, 0 left
	// acts after 200ms, 0 left
	// acts after 400ms, 0 left
}

// With StartFull, the burst can be used immediately, as with other limiters.
func ExampleBurstyConfig_startFull() {
	for _, full := range []bool{false, true} {
		clk := clock.NewMock()
		l := throttle.WithClock(warmup.NewBursty(warmup.BurstyConfig{Limit: throttle.PerSecond(2), StartFull: full}), clk)
		granted := 0
		for range 5 {
			if d, _ := l.Reserve(context.Background(), throttle.Claim{}); d.OK {
				granted++
			}
		}
		fmt.Printf("start full %v: %d of 5\n", full, granted)
	}
	// Output:
	// start full false: 1 of 5
	// start full true: 3 of 5
}
