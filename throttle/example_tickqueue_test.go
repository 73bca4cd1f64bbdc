package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// One unit is served at each tick, four times per second, and at most two units wait.
func ExampleNewTickQueue() {
	clk := clock.NewMock()
	l := throttle.WithClock(throttle.NewTickQueue(throttle.TickQueueConfig{
		Limit:  throttle.PerSecond(4),
		Queue:  2,
		Anchor: clk.Now(),
	}), clk)
	clk.Add(100 * time.Millisecond)
	for range 3 {
		d, _ := throttle.ReserveAhead(context.Background(), l, throttle.Claim{}, time.Minute)
		if d.OK {
			fmt.Println("start in", d.Wait)
		} else {
			fmt.Println("the queue is full, ask again in", d.Wait)
		}
	}
	// Output:
	// start in 150ms
	// start in 400ms
	// the queue is full, ask again in 150ms
}
