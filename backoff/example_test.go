package backoff_test

import (
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/backoff"
)

func Example() {
	p := backoff.Exponential{Base: 100 * time.Millisecond, Jitter: backoff.None} // no jitter, so that the output is constant
	budget, clk := &backoff.Budget{}, clock.NewMock()
	budget.Deposit(clk.Now(), 1) // the first attempt

	prev := time.Duration(0)
	for attempt := 1; attempt < 4; attempt++ {
		fmt.Printf("attempt %d failed", attempt)
		if !budget.Withdraw(clk.Now()) {
			fmt.Println(", and too many were retried lately")
			break
		}
		prev = p.Delay(attempt, prev)
		fmt.Printf(", the next one follows after %v\n", prev)
		clk.Add(prev)
	}
	// Output:
	// attempt 1 failed, the next one follows after 100ms
	// attempt 2 failed, the next one follows after 200ms
	// attempt 3 failed, the next one follows after 400ms
}
