package sketch_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/heed-go/heed/sketch"
	"github.com/heed-go/heed/throttle"
)

func ExampleBloom() {
	seen := sketch.NewBloom(sketch.BloomConfig{Keys: 1_000_000, ErrorRate: 0.01})
	fmt.Println(seen.TestAndAdd("203.0.113.7"), seen.TestAndAdd("203.0.113.7"))
	fmt.Printf("%.1f bits a key, %.2f %% errors when full, %.2f %% with twice the keys\n", float64(seen.Bytes())*8/1e6, 100*seen.ErrorRate(1e6), 100*seen.ErrorRate(2e6))
	// Output:
	// false true
	// 10.2 bits a key, 0.96 % errors when full, 16.01 % with twice the keys
}

// The counts of one process are added to those of another.
func ExampleCountMin_Merge() {
	p := sketch.CountMinConfig{Epsilon: 0.001, Delta: 0.01, Seed: 0x5eed} // a secret that both processes know
	here, there := sketch.NewCountMin(p), sketch.NewCountMin(p)
	here.Add("GET /", 3)
	there.Add("GET /", 4)

	bytes, _ := there.MarshalBinary()
	var received sketch.CountMin
	if err := received.UnmarshalBinary(bytes); err != nil {
		fmt.Println(err)
	}
	fmt.Println(here.Merge(&received), here.Count("GET /"))
	// Output: <nil> 7
}

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

func ExampleTopK() {
	top := sketch.NewTopK(100)
	for range 50 {
		top.Add("/search", 1)
	}
	for range 20 {
		top.Add("/", 1)
	}
	for i := range 200 {
		top.Add(fmt.Sprint("/item/", i), 1)
	}
	for _, h := range top.First(2) {
		fmt.Printf("%-8s at least %d, at most %d\n", h.Key, h.Count-h.MaxError, h.Count)
	}
	// Output:
	// /search  at least 50, at most 50
	// /        at least 20, at most 20
}

// A hundred thousand clients may send two requests per minute each.
func ExampleLimiter() {
	clk := clock.NewMock()
	l := throttle.WithClock(sketch.NewLimiter(sketch.LimiterConfig{
		Limit:     throttle.PerMinute(2),
		Clients:   100_000,
		Returning: 1_000,
	}), clk)
	for range 3 {
		d, _ := l.Reserve(context.Background(), throttle.Claim{Key: "203.0.113.7"})
		fmt.Printf("%-5v  left %d  again in %v\n", d.OK, d.Remaining, d.Wait)
	}
	fmt.Printf("%.1f bytes a client\n", float64(l.Bytes())/100_000)
	// Output:
	// true   left 1  again in 0s
	// true   left 0  again in 0s
	// false  left 0  again in 1m30s
	// 4.8 bytes a client
}
