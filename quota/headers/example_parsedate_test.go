package headers_test

import (
	"fmt"
	"net/http"
	"time"

	"github.com/heed-go/heed/quota/headers"
)

// The difference between a server's clock and the local one.
func ExampleParseDate() {
	received := time.Date(2026, 11, 21, 12, 0, 5, 0, time.UTC)
	h := http.Header{"Date": {"Sat, 21 Nov 2026 12:00:00 GMT"}}
	if date, ok := headers.ParseDate(h.Values("Date"), received); ok {
		fmt.Println("the server's clock is", received.Sub(date), "behind")
	}
	// Output:
	// the server's clock is 5s behind
}
