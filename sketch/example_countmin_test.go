package sketch_test

import (
	"fmt"

	"github.com/heed-go/heed/sketch"
)

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

// How often each key was added. A count may be too high, never too low.
func ExampleNewCountMin() {
	counts := sketch.NewCountMin(sketch.CountMinConfig{Epsilon: 0.0001, Delta: 0.01})
	for range 3 {
		counts.Add("203.0.113.7", 1)
	}
	fmt.Println(counts.Count("203.0.113.7"), counts.Count("203.0.113.8"))
	// Output:
	// 3 0
}
