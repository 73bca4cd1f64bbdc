package bandwidth_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/bandwidth"
	"github.com/heed-go/heed/throttle"
)

// A client that downloads at most 1 MB/s.
func ExampleTransport() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, strings.Repeat("x", 300_000))
	}))
	defer server.Close()
	limit := throttle.NewTokenBucket(bandwidth.PerSecond(1_000_000)) // with a burst of 50,000 bytes

	client := heed.NewClient(&heed.Transport{Base: &bandwidth.Transport{Download: limit}})
	start := time.Now()
	resp, err := client.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	fmt.Println(n, err, time.Since(start) >= 250*time.Millisecond)
	// Output: 300000 <nil> true
}
