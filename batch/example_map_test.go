package batch_test

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/heed-go/heed/batch"
)

// Map returns the values of a function in the order of the items, whatever the order in
// which they were processed.
func ExampleMap() {
	upper := func(_ context.Context, s string) (string, error) { return strings.ToUpper(s), nil }
	values, _, err := batch.Map(context.Background(), slices.Values([]string{"a", "b", "c"}), upper, batch.Options{Workers: 3})
	fmt.Println(values, err)
	// Output: [A B C] <nil>
}
