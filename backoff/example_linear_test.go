package backoff_test

import (
	"fmt"
	"time"

	"github.com/heed-go/heed/backoff"
)

// Delays that grow by two seconds, up to five.
func ExampleLinear() {
	p := backoff.Linear{Base: 2 * time.Second, Max: 5 * time.Second, Jitter: backoff.None} // no jitter, so that the output is constant
	for attempt := 1; attempt <= 4; attempt++ {
		fmt.Println(p.Delay(attempt, 0))
	}
	// Output:
	// 2s
	// 4s
	// 5s
	// 5s
}

// Always the same delay, for polling and for tests.
func ExampleConstant() {
	p := backoff.Constant(250 * time.Millisecond)
	fmt.Println(p.Delay(1, 0), p.Delay(7, 0))
	// Output:
	// 250ms 250ms
}
