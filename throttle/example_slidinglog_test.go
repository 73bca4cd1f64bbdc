package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// At most three units in any minute, and at least ten seconds between two claims.
func ExampleNewSlidingLog() {
	clk := clock.NewMock()
	l := throttle.WithClock(throttle.NewSlidingLog(throttle.SlidingLogConfig{
		Limit:  throttle.PerMinute(3),
		MinGap: 10 * time.Second,
	}), clk)
	for _, second := range []int64{0, 5, 15, 30, 45, 60} {
		clk.Set(time.Unix(second, 0))
		d, _ := l.Reserve(context.Background(), throttle.Claim{})
		fmt.Printf("%2ds %-5v again in %v\n", second, d.OK, d.Wait)
	}
	// Output:
	//  0s true  again in 0s
	//  5s false again in 5s
	// 15s true  again in 0s
	// 30s true  again in 0s
	// 45s false again in 15s
	// 60s true  again in 0s
}

// A key that continues to send during a rejection stays rejected.
func ExampleSlidingLogConfig_countRejected() {
	clk := clock.NewMock()
	l := throttle.WithClock(throttle.NewSlidingLog(throttle.SlidingLogConfig{
		Limit:         throttle.PerMinute(1),
		CountRejected: true,
	}), clk)
	for _, second := range []int64{0, 40, 80, 140} {
		clk.Set(time.Unix(second, 0))
		d, _ := l.Reserve(context.Background(), throttle.Claim{})
		fmt.Printf("%3ds %-5v again in %v\n", second, d.OK, d.Wait)
	}
	// Output:
	//   0s true  again in 0s
	//  40s false again in 1m0s
	//  80s false again in 1m0s
	// 140s true  again in 0s
}
