package headers_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/heed-go/heed/quota/headers"
)

// A server states one limit in the two common dialects.
func ExampleWrite() {
	h := http.Header{}
	headers.Write(h, headers.XRateLimit|headers.Draft10, headers.Report{
		Limits: []headers.Limit{{
			Name:  "search",
			Limit: 30, HasLimit: true,
			Remaining: 0, HasRemaining: true,
			ResetAfter: 11500 * time.Millisecond, HasReset: true,
			Window: time.Minute,
		}},
		RetryAfter: 11500 * time.Millisecond, HasRetryAfter: true,
	})
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit-Policy", "RateLimit", "Retry-After"} {
		fmt.Printf("%s: %s\n", name, h.Get(name))
	}
	// Output:
	// X-RateLimit-Limit: 30
	// X-RateLimit-Remaining: 0
	// X-RateLimit-Reset: 12
	// RateLimit-Policy: "search";q=30;w=60
	// RateLimit: "search";r=0;t=12
	// Retry-After: 12
}
