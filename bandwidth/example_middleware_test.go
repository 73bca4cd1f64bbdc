package bandwidth_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/heed-go/heed/bandwidth"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
)

// A server whose responses have 1 MB/s for each customer, who shares them among all downloads.
func ExampleMiddleware() {
	customer := func(r *http.Request) string { return r.Header.Get("X-Customer") } // set by the authentication
	paced := &bandwidth.Middleware{
		Download: &keyed.Limiter{New: func(string) throttle.Limiter {
			return throttle.NewTokenBucket(bandwidth.PerSecond(1_000_000))
		}},
		Key: customer,
	}
	server := httptest.NewServer(paced.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, strings.Repeat("x", 300_000))
	})))
	defer server.Close()

	start := time.Now()
	resp, err := http.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	fmt.Println(n, err, time.Since(start) >= 250*time.Millisecond)
	// Output: 300000 <nil> true
}
