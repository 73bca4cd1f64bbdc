package rate_test

import (
	"fmt"
	"time"

	"github.com/heed-go/heed/rate"
)

// The first two of many equal errors are logged, then every tenth, and one after each minute
// without a message.
func ExampleSometimes() {
	log := rate.Sometimes{First: 2, Every: 10, Interval: time.Minute}
	for i := range 25 {
		log.Do(func() { fmt.Println("connection lost, event", i) })
	}
	// Output:
	// connection lost, event 0
	// connection lost, event 1
	// connection lost, event 10
	// connection lost, event 20
}
