package monitor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/rules/monitor"
	"github.com/heed-go/heed/throttle"
)

// A client sends 30 requests at the beginning of each minute, to a limit of one request per
// second. The recommended limit grants all of them.
func ExampleRecommend() {
	clk := clock.NewMock()
	limit := throttle.Limit{Count: 60, Per: time.Minute, Burst: 1}
	stats := &monitor.Stats{Limit: limit}
	sendBursts := func(l throttle.Limiter) {
		for minute := range 10 {
			for range 30 {
				c := throttle.Claim{Key: "ann", Now: clk.Now().Add(time.Duration(minute) * time.Minute)}
				if _, err := l.Reserve(context.Background(), c); err != nil {
					fmt.Println(err)
				}
			}
		}
	}
	sendBursts(&monitor.Instrument{Limiter: throttle.WithClock(throttle.NewTokenBucket(limit), clk), Stats: stats})
	n := stats.Snapshot()
	fmt.Println(n.Allowed, "allowed,", n.Rejected, "rejected,", n.Returned, "times she came back")
	recommendation := monitor.Recommend(limit, n)
	fmt.Println(recommendation)

	stats.Reset()
	sendBursts(&monitor.Instrument{Limiter: throttle.WithClock(throttle.NewTokenBucket(recommendation.Limit), clk), Stats: stats})
	fmt.Println(stats.Snapshot().Rejected, "rejected then")
	// Output:
	// 10 allowed, 290 rejected, 9 times she came back
	// Use a token bucket of 60 per 1m0s, burst 30: 96.7 % of all claims were rejected, from keys that send bursts but keep to the rate.
	// 0 rejected then
}
