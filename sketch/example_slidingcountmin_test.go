package sketch_test

import (
	"fmt"
	"time"

	"github.com/heed-go/heed/sketch"
)

// How often each path was requested in the last hour, whatever the number of paths.
func ExampleNewSlidingCountMin() {
	counts := sketch.NewSlidingCountMin(sketch.CountMinConfig{Epsilon: 0.001}, time.Hour)
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	counts.Add("/search", 80, noon)
	for _, later := range []time.Duration{0, 90 * time.Minute, 2 * time.Hour} {
		fmt.Println(later, counts.Count("/search", noon.Add(later)))
	}
	// Output:
	// 0s 80
	// 1h30m0s 40
	// 2h0m0s 0
}
