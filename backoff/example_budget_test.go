package backoff_test

import (
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/backoff"
)

// The server is down, so every call would be retried three times. The Budget allows a retry for
// a fifth of the calls, and one more.
func ExampleBudget() {
	b := &backoff.Budget{MinPerSecond: 0.1}
	clk := clock.NewMock()
	for range 100 {
		b.Deposit(clk.Now(), 1)
		for range 3 {
			b.Withdraw(clk.Now())
		}
		clk.Add(50 * time.Millisecond)
	}
	s := b.Snapshot(clk.Now())
	fmt.Printf("%d requests, %d retries, %d rejected\n", s.Requests, s.Retries, s.Rejected)
	// Output:
	// 100 requests, 21 retries, 279 rejected
}
