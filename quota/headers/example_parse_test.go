package headers_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/heed-go/heed/quota/headers"
)

// A rejection that states its limit in the fields of the IETF draft.
func ExampleParse() {
	h := http.Header{}
	h.Set("RateLimit-Policy", `"search";q=30;w=60`)
	h.Set("RateLimit", `"search";r=0;t=12`)
	h.Set("Retry-After", "12")

	r := headers.Parse(http.StatusTooManyRequests, h, time.Now())
	for _, l := range r.Limits {
		fmt.Printf("%s: %d of %d left, window %v, reset in %v\n", l.Name, l.Remaining, l.Limit, l.Window, l.ResetAfter)
	}
	fmt.Println("rejected:", r.Throttled)
	fmt.Println("retry after", r.Wait)
	// Output:
	// search: 0 of 30 left, window 1m0s, reset in 12s
	// rejected: true
	// retry after 12s
}
