package stripe

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/heed-go/heed/examples/uses/internal/scenario"
	"github.com/heed-go/heed/heedtest"
)

// Scenario creates 1,000 customers.
func Scenario() scenario.Scenario {
	emails := make([]string, 1000)
	for i := range emails {
		emails[i] = fmt.Sprintf("customer-%d@example.com", i)
	}
	create := func(newClient func(http.RoundTripper) *stripe.Client) scenario.Job {
		return func(ctx context.Context, base http.RoundTripper) (failed int) {
			return CreateCustomers(ctx, newClient(base), emails)
		}
	}
	return scenario.Scenario{
		Name:  "stripe-go",
		Calls: len(emails),
		API:   func(c *scenario.Counts) func(heedtest.Request) heedtest.Response { return newAPI(c).respond },
		Default: create(func(base http.RoundTripper) *stripe.Client {
			return stripe.NewClient("sk_test_1", stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
				HTTPClient:    &http.Client{Transport: base, Timeout: 80 * time.Second}, // as stripe-go
				LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
			})))
		}),
		Heed: create(func(base http.RoundTripper) *stripe.Client { return NewClient(base, "sk_test_1") }),
	}
}
