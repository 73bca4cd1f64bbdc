package adaptive_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/adaptive"
)

// The rate in each second of a caller that always has work, with a server that allows 20
// requests per second and rejects the others without stating its limit. The first cut is
// based on the rate of sending at that time.
func ExampleLimiter() {
	ctx, clk := context.Background(), clock.NewMock()
	l := throttle.WithClock(adaptive.New(adaptive.Config{}), clk)
	server := throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: 20, Per: time.Second, Burst: 5}), clk)
	for second := range 20 {
		rejected := 0
		for end := clk.Now().Add(time.Second); clk.Now().Before(end); {
			d, _ := l.Reserve(ctx, throttle.Claim{})
			if !d.OK {
				clk.Add(d.Wait)
				continue
			}
			clk.Add(time.Millisecond)
			f := throttle.Feedback{}
			if answer, _ := server.Reserve(ctx, throttle.Claim{}); !answer.OK {
				f.Outcome = throttle.Throttled
				rejected++
			}
			l.Report(ctx, throttle.Claim{}, d, f)
		}
		fmt.Printf("%2d |%s*%s\n", second, strings.Repeat(" ", int(l.Rate())), strings.Repeat(" rejected", rejected))
	}
	// Output:
	// 0 |          * rejected
	//  1 |           *
	//  2 |            *
	//  3 |              *
	//  4 |                      *
	//  5 |              * rejected
	//  6 |                   *
	//  7 |                     *
	//  8 |                     *
	//  9 |               * rejected
	// 10 |                    *
	// 11 |                     *
	// 12 |                     *
	// 13 |                  * rejected
	// 14 |                     *
	// 15 |                     *
	// 16 |                  * rejected
	// 17 |                     *
	// 18 |                     *
	// 19 |               * rejected
}
