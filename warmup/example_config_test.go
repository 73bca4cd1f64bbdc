package warmup_test

import (
	"fmt"
	"strings"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/warmup"
)

// The time that a unit takes depends on how long the limit was idle. An idle time of up to half
// of Period has no effect; after that a unit takes longer, up to three times as long.
func ExampleConfig() {
	c := warmup.Config{Limit: throttle.PerSecond(20), Period: 3 * time.Second}
	for idle := time.Duration(0); idle <= 3500*time.Millisecond; idle += 250 * time.Millisecond {
		took := c.Interval(idle).Round(time.Millisecond)
		fmt.Printf("%5v  %-5v |%s\n", idle.Seconds(), took, strings.Repeat("-", int(took/(5*time.Millisecond)))+"*")
	}
	// Output:
	//     0  50ms  |----------*
	//  0.25  50ms  |----------*
	//   0.5  50ms  |----------*
	//  0.75  50ms  |----------*
	//     1  50ms  |----------*
	//  1.25  50ms  |----------*
	//   1.5  50ms  |----------*
	//  1.75  67ms  |-------------*
	//     2  83ms  |----------------*
	//  2.25  100ms |--------------------*
	//   2.5  117ms |-----------------------*
	//  2.75  133ms |--------------------------*
	//     3  150ms |------------------------------*
	//  3.25  150ms |------------------------------*
	//   3.5  150ms |------------------------------*
}
