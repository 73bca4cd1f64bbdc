package throttle_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// A new limit is tested before it is enforced.
func ExampleShadow() {
	clk := clock.NewMock()
	planned := throttle.NewTokenBucket(throttle.Limit{Name: "planned", Count: 2, Per: time.Second})
	l := throttle.Shadow(throttle.WithClock(planned, clk), func(c throttle.Claim, d throttle.Decision) {
		fmt.Printf("%s would have to wait %v for %q\n", c.Key, d.Wait, d.Policy)
	})
	for range 3 {
		d, _ := l.Reserve(context.Background(), throttle.Claim{Key: "ann"})
		fmt.Println(d.OK, d.OverLimit)
	}
	// Output:
	// true false
	// true false
	// ann would have to wait 500ms for "planned"
	// true true
}
