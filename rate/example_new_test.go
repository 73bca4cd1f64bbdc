package rate_test

import (
	"context"
	"fmt"
	"time"

	"github.com/heed-go/heed/rate"
	"github.com/heed-go/heed/throttle"
)

// At most 10 units per second, of which up to 3 may be used at one time.
func ExampleNewLimiter() {
	limiter := rate.NewLimiter(10, 3)

	ctx := context.Background()
	for i := range 3 {
		if err := limiter.Wait(ctx); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("request", i)
	}

	limiter = rate.NewLimiter(rate.Every(time.Hour), 1) // one per hour
	fmt.Println(limiter.Allow(), limiter.Allow())
	// Output:
	// request 0
	// request 1
	// request 2
	// true false
}

// A limit that counts in windows, with the methods of golang.org/x/time/rate.
func ExampleNew() {
	limiter := rate.New(throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.PerHour(2)}))
	fmt.Println(limiter.Allow(), limiter.Allow(), limiter.Allow())

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(limiter.Wait(ctx) != nil) // the wait would exceed the deadline: an error without a delay
	// Output:
	// true true false
	// true
}
