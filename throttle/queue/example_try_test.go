package queue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// Try is granted now or not at all, for work that can be skipped. It does not overtake callers
// that wait.
func ExampleQueue_Try() {
	q := queue.Queue{Clock: clock.NewMock()}
	refresh := throttle.NewTokenBucket(throttle.Limit{Name: "refresh", Count: 1, Per: time.Minute})
	for range 2 {
		var t queue.Ticket
		t.Add(throttle.Demand{Limiter: refresh})
		err := q.Try(context.Background(), &t)
		switch {
		case err == nil:
			fmt.Println("refreshed")
			q.Report(context.Background(), &t, throttle.Feedback{})
		case errors.Is(err, throttle.ErrRejected):
			fmt.Println("skipped:", err)
		default:
			fmt.Println(err)
		}
	}
	// Output:
	// refreshed
	// skipped: throttle: rejected by limit "refresh": ask again in 1 min
}
