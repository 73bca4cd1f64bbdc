package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// Ten per minute, and 20 % more with a warning.
func ExampleNewSoftLimit() {
	clk := clock.NewMock()
	limit := throttle.Limit{Name: "plan", Count: 10, Per: time.Minute}
	l := throttle.NewSoftLimit(throttle.SoftLimitConfig{
		Soft: throttle.WithClock(throttle.NewTokenBucket(limit), clk),
		Hard: throttle.WithClock(throttle.NewTokenBucket(limit.PlusPercent(20)), clk),
	})
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

// A team may use more than its limit while the teams together use less than theirs.
func ExampleNewSoftLimit_canBorrow() {
	clk := clock.NewMock()
	idle := true
	l := throttle.NewSoftLimit(throttle.SoftLimitConfig{
		Soft:      throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Name: "team", Count: 1, Per: time.Minute}), clk),
		CanBorrow: func(throttle.Claim, throttle.Decision) bool { return idle },
	})
	for i := 1; i <= 3; i++ {
		idle = i < 3
		d, _ := l.Reserve(context.Background(), throttle.Claim{})
		fmt.Printf("%d: granted %v, over the limit %v\n", i, d.OK, d.OverLimit)
	}
	// Output:
	// 1: granted true, over the limit false
	// 2: granted true, over the limit true
	// 3: granted false, over the limit false
}
