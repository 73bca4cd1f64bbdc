package adaptive_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/adaptive"
)

// A program makes 100 calls per second. The server accepts all of them in the first minute, 10
// per second in the next five, and all again after that. With a K of 2, the program sends about
// twice as many requests as the server accepts. Without AdmissionControl it would send all.
func ExampleNewAdmissionControl() {
	ctx, clk := context.Background(), clock.NewMock()
	l := throttle.WithClock(adaptive.NewAdmissionControl(adaptive.AdmissionControlConfig{
		Rand: rand.New(rand.NewPCG(1, 2)).Float64, // seeded, so that the output is constant
	}), clk)
	now := clk.Now()
	for minute := range 10 {
		sent := 0
		for range 60 {
			capacity := 100
			if minute >= 1 && minute < 6 {
				capacity = 10
			}
			for range 100 {
				now = now.Add(10 * time.Millisecond)
				c := throttle.Claim{Now: now}
				d, _ := l.Reserve(ctx, c)
				if !d.OK {
					continue // fail this call without a request
				}
				sent++
				f := throttle.Feedback{Now: now}
				if capacity--; capacity < 0 {
					f.Outcome = throttle.Throttled
				}
				l.Report(ctx, c, d, f)
			}
		}
		fmt.Printf("minute %d: %3d requests per second\n", minute, sent/60)
	}
	// Output:
	// minute 0: 100 requests per second
	// minute 1: 100 requests per second
	// minute 2:  62 requests per second
	// minute 3:  20 requests per second
	// minute 4:  20 requests per second
	// minute 5:  19 requests per second
	// minute 6:  27 requests per second
	// minute 7:  58 requests per second
	// minute 8:  98 requests per second
	// minute 9: 100 requests per second
}
