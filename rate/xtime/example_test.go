package xtime_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"
	"golang.org/x/time/rate"

	"github.com/heed-go/heed/rate/xtime"
	"github.com/heed-go/heed/throttle"
)

// A *rate.Limiter that a program already has is used as a throttle.Limiter.
func ExampleNew() {
	clk := clock.NewMock()
	old := rate.NewLimiter(rate.Every(100*time.Millisecond), 3)
	l := throttle.WithClock(xtime.New(old, "old"), clk)

	old.AllowN(clk.Now(), 2) // by another part of the program
	for range 2 {
		d, _ := l.Reserve(context.Background(), throttle.Claim{})
		fmt.Printf("%-5v  left %d of %d  again in %v\n", d.OK, d.Remaining, d.Limit, d.Wait)
	}
	// Output:
	// true   left 0 of 3  again in 0s
	// false  left 0 of 3  again in 100ms
}
