package warmup_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

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
