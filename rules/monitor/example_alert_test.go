package monitor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/rules/monitor"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// A login form allows 5 attempts per minute. The Alert reports a client once that keeps exceeding
// the limit.
func ExampleAlert() {
	clk := clock.NewMock()
	l := &monitor.Instrument{
		Limiter: throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerMinute(5)}), clk),
		Alert: &monitor.Alert{Threshold: throttle.PerMinute(10), Quiet: time.Hour, OnIncident: func(e monitor.Incident) {
			fmt.Println(e.Key, e.Rejected, "rejections,", e.Failed, "failures")
		}},
	}
	for range 200 {
		c := throttle.Claim{Key: "192.0.2.1", Now: clk.Now()}
		d, err := l.Reserve(context.Background(), c)
		if err != nil {
			fmt.Println(err)
		}
		if d.OK { // and the password was wrong
			l.Report(context.Background(), c, d, throttle.Feedback{Now: clk.Now(), Outcome: throttle.Failed})
		}
	}
	// Output:
	// 192.0.2.1 6 rejections, 5 failures
}
