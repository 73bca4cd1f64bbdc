package throttle_test

import (
	"context"
	"fmt"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// A Decision names the limit of an AllOf that rejected the claim, and its index in Parts.
func ExampleTraits_parts() {
	clk := clock.NewMock()
	l := throttle.WithClock(throttle.AllOf(
		throttle.NewTokenBucket(throttle.PerSecond(10)),
		throttle.NewConcurrency(throttle.ConcurrencyConfig{Name: "connections", Count: 2}),
	), clk)
	for range 3 {
		d, _ := l.Reserve(context.Background(), throttle.Claim{})
		if !d.OK {
			fmt.Printf("rejected by %q, part %d of %d\n", d.Policy, d.Part(), len(l.Traits().Parts))
		}
	}
	// Output:
	// rejected by "connections", part 1 of 2
}
