package sketch_test

import (
	"fmt"

	"github.com/heed-go/heed/sketch"
)

func ExampleBloom() {
	seen := sketch.NewBloom(sketch.BloomConfig{Keys: 1_000_000, ErrorRate: 0.01})
	fmt.Println(seen.TestAndAdd("203.0.113.7"), seen.TestAndAdd("203.0.113.7"))
	fmt.Printf("%.1f bits a key, %.2f %% errors when full, %.2f %% with twice the keys\n", float64(seen.Bytes())*8/1e6, 100*seen.ErrorRate(1e6), 100*seen.ErrorRate(2e6))
	// Output:
	// false true
	// 10.2 bits a key, 0.96 % errors when full, 16.01 % with twice the keys
}
