package sketch_test

import (
	"fmt"

	"github.com/heed-go/heed/sketch"
)

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
