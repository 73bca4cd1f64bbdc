package sketch_test

import (
	"fmt"
	"time"

	"github.com/heed-go/heed/sketch"
)

func ExampleSlidingBloom() {
	logins := sketch.NewSlidingBloom(sketch.BloomConfig{Keys: 10_000}, time.Hour)
	at := time.Date(2026, 3, 1, 11, 50, 0, 0, time.UTC)
	logins.Add("alice", at)
	for _, later := range []time.Duration{20 * time.Minute, time.Hour, 2 * time.Hour} {
		fmt.Println(later, logins.Test("alice", at.Add(later)))
	}
	// Output:
	// 20m0s true
	// 1h0m0s true
	// 2h0m0s false
}
