package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// Ten per minute, and 20 % more with a warning.
func ExampleSoftLimit() {
	clk := clock.NewMock()
	limit := throttle.Limit{Name: "plan", Count: 10, Per: time.Minute}
	l := &throttle.SoftLimit{
		Soft: throttle.WithClock(throttle.NewTokenBucket(limit), clk),
		Hard: throttle.WithClock(throttle.NewTokenBucket(limit.PlusPercent(20)), clk),
	}
	for i := 1; i <= 13; i++ {
		d, _ := l.Reserve(context.Background(), throttle.Claim{})
		if i >= 10 {
			fmt.Printf("%d: granted %v, over the limit %v\n", i, d.OK, d.OverLimit)
		}
	}
	// Output:
	// 10: granted true, over the limit false
	// 11: granted true, over the limit true
	// 12: granted true, over the limit true
	// 13: granted false, over the limit false
}

// A new limit is tested before it is enforced.
func ExampleShadow() {
	clk := clock.NewMock()
	l := &throttle.SoftLimit{
		Soft: throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Name: "planned", Count: 2, Per: time.Second}), clk),
		OnOverLimit: func(c throttle.Claim, d throttle.Decision) {
			fmt.Printf("%s would have had to wait %v for %q\n", c.Key, d.Wait, d.Policy)
		},
	}
	for range 3 {
		d, _ := l.Reserve(context.Background(), throttle.Claim{Key: "ann"})
		fmt.Println(d.OK, d.OverLimit)
	}
	// Output:
	// true false
	// true false
	// ann would have had to wait 500ms for "planned"
	// true true
}

// Two claims at the same time, independent of how long they take.
func ExampleConcurrency() {
	ctx := context.Background()
	l := throttle.WithClock(throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 2}), clock.NewMock())
	first, _ := l.Reserve(ctx, throttle.Claim{})
	l.Reserve(ctx, throttle.Claim{})
	third, _ := l.Reserve(ctx, throttle.Claim{})
	fmt.Println("third:", third.OK)

	l.Observe(ctx, throttle.Claim{}, first, throttle.Feedback{}) // the first claim ends
	third, _ = l.Reserve(ctx, throttle.Claim{})
	fmt.Println("third:", third.OK)
	// Output:
	// third: false
	// third: true
}
