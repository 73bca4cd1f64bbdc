// Package stripe creates many customers, with stripe-go and heed.
package stripe

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
)

// NewClient returns a client for all goroutines of a program. Nil as base means
// http.DefaultTransport.
func NewClient(base http.RoundTripper, key string) *stripe.Client {
	limit := throttle.PerSecond(80).WithBurst(10) // Stripe allows 100, and does not state it in responses
	if strings.HasPrefix(key, "sk_test_") {
		limit = throttle.PerSecond(20).WithBurst(5) // 25 in a sandbox
	}
	transport := &heed.Transport{
		Base:    base,
		Limiter: throttle.NewTokenBucket(limit),
		Retry:   &heed.RetryPolicy{AttemptTimeout: 80 * time.Second}, // as in the http.Client of stripe-go
	}
	return stripe.NewClient(key, stripe.WithBackends(stripe.NewBackendsWithConfig(&stripe.BackendConfig{
		HTTPClient:        heed.NewClient(transport),
		MaxNetworkRetries: stripe.Int64(0),
	})))
}

// CreateCustomers creates a customer for each email address. It returns how many failed.
func CreateCustomers(ctx context.Context, client *stripe.Client, emails []string) (failed int) {
	var n atomic.Int64
	var all sync.WaitGroup
	for _, email := range emails {
		all.Go(func() {
			params := &stripe.CustomerCreateParams{Email: stripe.String(email)}
			// Stripe creates one customer for a key, however often it receives the request.
			params.SetIdempotencyKey("create-customer-" + email)
			if _, err := client.V1Customers.Create(ctx, params); err != nil {
				n.Add(1)
			}
		})
	}
	all.Wait()
	return int(n.Load())
}
