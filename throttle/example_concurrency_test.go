package throttle_test

import (
	"context"
	"fmt"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
)

// Two claims at the same time, independent of how long they take.
func ExampleNewConcurrency() {
	ctx := context.Background()
	l := throttle.WithClock(throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 2}), clock.NewMock())
	first, _ := l.Reserve(ctx, throttle.Claim{})
	l.Reserve(ctx, throttle.Claim{})
	third, _ := l.Reserve(ctx, throttle.Claim{})
	fmt.Println("third:", third.OK)

	l.Report(ctx, throttle.Claim{}, first, throttle.Feedback{}) // the first claim ends
	third, _ = l.Reserve(ctx, throttle.Claim{})
	fmt.Println("third:", third.OK)
	// Output:
	// third: false
	// third: true
}
