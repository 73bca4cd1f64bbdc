package sketch_test

import (
	"context"
	"fmt"

	"github.com/benbjohnson/clock"
	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
)

// A hundred thousand clients may send two requests per minute each.
func ExampleLimiter() {
	clk := clock.NewMock()
	l := throttle.WithClock(sketch.NewLimiter(sketch.LimiterConfig{
		Limit:     throttle.PerMinute(2),
		Clients:   100_000,
		Returning: 1_000,
	}), clk)
	for range 3 {
		d, _ := l.Reserve(context.Background(), throttle.Claim{Key: "203.0.113.7"})
		fmt.Printf("%-5v  left %d  again in %v\n", d.OK, d.Remaining, d.Wait)
	}
	fmt.Printf("%.1f bytes a client\n", float64(l.Bytes())/100_000)
	// Output:
	// true   left 1  again in 0s
	// true   left 0  again in 0s
	// false  left 0  again in 1m30s
	// 4.8 bytes a client
}
