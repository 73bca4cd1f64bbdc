package warmup_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// The time that a unit takes depends on how long the limit was idle. An idle time of up to half
// of Period has no effect; after that a unit takes longer, up to three times as long.
func ExampleConfig() {
	c := warmup.Config{Limit: throttle.PerSecond(20), Period: 3 * time.Second}
	for idle := time.Duration(0); idle <= 3500*time.Millisecond; idle += 250 * time.Millisecond {
		took := c.Interval(idle).Round(time.Millisecond)
		fmt.Printf("%5v  %-5v |%s\n", idle.Seconds(), took, strings.Repeat("-", int(took/(5*time.Millisecond)))+"*")
	}
	// Output:
	//     0  50ms  |----------*
	//  0.25  50ms  |----------*
	//   0.5  50ms  |----------*
	//  0.75  50ms  |----------*
	//     1  50ms  |----------*
	//  1.25  50ms  |----------*
	//   1.5  50ms  |----------*
	//  1.75  67ms  |-------------*
	//     2  83ms  |----------------*
	//  2.25  100ms |--------------------*
	//   2.5  117ms |-----------------------*
	//  2.75  133ms |--------------------------*
	//     3  150ms |------------------------------*
	//  3.25  150ms |------------------------------*
	//   3.5  150ms |------------------------------*
}

// A caller that always has work uses a limit of 20 units per second with a warm-up of three
// seconds: the output shows the units of each quarter of a second. Then the limit is idle for
// half a second and stays warm, and is idle for three seconds and becomes cold.
func ExampleNew() {
	ctx, clk := context.Background(), clock.NewMock()
	l := throttle.WithClock(warmup.New(warmup.Config{Limit: throttle.PerSecond(20), Period: 3 * time.Second}), clk)
	work := func(d time.Duration) {
		for end := clk.Now().Add(d); clk.Now().Before(end); {
			usages := ""
			for quarter := clk.Now().Add(250 * time.Millisecond); clk.Now().Before(quarter); {
				d, _ := l.Reserve(ctx, throttle.Claim{})
				if !d.OK {
					clk.Add(min(d.Wait, quarter.Sub(clk.Now())))
					continue
				}
				usages += "*"
			}
			fmt.Printf("%.2fs %s\n", float64(clk.Now().UnixMilli()-250)/1e3, usages)
		}
	}
	work(4 * time.Second)
	clk.Add(500 * time.Millisecond)
	work(500 * time.Millisecond)
	clk.Add(3 * time.Second)
	work(time.Second)
	// Output:
	// 0.00s **
	// 0.25s **
	// 0.50s **
	// 0.75s **
	// 1.00s **
	// 1.25s **
	// 1.50s **
	// 1.75s ***
	// 2.00s ***
	// 2.25s ***
	// 2.50s ***
	// 2.75s ****
	// 3.00s *****
	// 3.25s *****
	// 3.50s *****
	// 3.75s *****
	// 4.50s *****
	// 4.75s *****
	// 8.00s **
	// 8.25s **
	// 8.50s **
	// 8.75s **
}

// NewBursty configured like RateLimiter.create(5) of Guava: one second of idle time is saved,
// and the first claim never waits.
func ExampleNewBursty() {
	clk := clock.NewMock()
	l := throttle.WithClock(warmup.NewBursty(warmup.BurstyConfig{Limit: throttle.PerSecond(5)}), clk)
	clk.Add(time.Minute)
	for range 8 {
		d, _ := l.ReserveAhead(context.Background(), throttle.Claim{}, time.Second)
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
