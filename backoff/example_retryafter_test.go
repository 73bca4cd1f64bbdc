package backoff_test

import (
	"fmt"
	"time"

	"github.com/heed-go/heed/backoff"
)

// The random delay is added to the wait that the server asked for.
func ExampleRetryAfterJitter() {
	f := backoff.RetryAfterJitter{Rand: func() float64 { return 0.5 }}
	for attempt := 1; attempt <= 3; attempt++ {
		fmt.Println(f.Delay(time.Minute, attempt))
	}
	fmt.Println(f.Delay(0, 1))
	// Output:
	// 1m3s
	// 1m6s
	// 1m12s
	// 750ms
}
