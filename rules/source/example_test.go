package source_test

import (
	"context"
	"fmt"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/rules/source"
	"github.com/heed-go/heed/throttle"
)

// Each account has the limit of a table of accounts.
func ExampleSource() {
	clk := clock.NewMock()
	perMinute := map[string]int64{"ann": 2, "bob": 1}
	s := &source.Source{
		Lookup: func(_ context.Context, key string) (throttle.Limit, error) {
			if key == "admin" {
				return throttle.Limit{}, source.ErrUnlimited
			}
			n, found := perMinute[key]
			if !found {
				return throttle.Limit{}, source.ErrNoLimit
			}
			return throttle.PerMinute(n), nil
		},
		Default: throttle.Limit{Name: "free plan", Count: 1, Per: throttle.PerMinute(1).Per},
		Clock:   clk,
	}
	ask := func(key string) {
		d, err := s.Reserve(context.Background(), throttle.Claim{Key: key})
		fmt.Printf("%-6s %-5v %s %v\n", key, d.OK, d.Policy, err)
	}
	for _, key := range []string{"ann", "ann", "ann", "bob", "bob", "admin", "eve"} {
		ask(key)
	}
	perMinute["bob"] = 3 // the new limit keeps the units that were used
	s.Refresh()
	ask("bob")
	// Output:
	// ann    true  2 per 1m0s <nil>
	// ann    true  2 per 1m0s <nil>
	// ann    false 2 per 1m0s <nil>
	// bob    true  1 per 1m0s <nil>
	// bob    false 1 per 1m0s <nil>
	// admin  true  unlimited <nil>
	// eve    true  free plan <nil>
	// bob    false 3 per 1m0s <nil>
}
