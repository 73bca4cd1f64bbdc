package heed_test

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
)

// Reports are retried more often than other requests, and payments not at all.
func ExampleTransport_retryFor() {
	reports := &heed.RetryPolicy{MaxAttempts: 6, Backoff: backoff.Constant(0)}
	once := &heed.RetryPolicy{MaxAttempts: 1}
	client := heed.NewClient(&heed.Transport{
		Base:  &api{503}, // simulates the server; leave it out in a program
		Retry: &heed.RetryPolicy{MaxAttempts: 3, Backoff: backoff.Constant(0)},
		RetryFor: func(req *http.Request) *heed.RetryPolicy {
			switch {
			case strings.HasPrefix(req.URL.Path, "/reports/"):
				return reports
			case req.URL.Host == "pay.example.com":
				return once
			}
			return nil // Retry applies
		},
	})
	for _, url := range []string{"https://api.example.com/reports/1", "https://pay.example.com/", "https://api.example.com/items"} {
		resp, err := client.Get(url)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		attempts := 1 // InfoFrom is false for a single attempt that is not retried
		if info, ok := heed.InfoFrom(resp); ok {
			attempts = info.Attempts
		}
		fmt.Println(url, attempts)
	}
	// Output:
	// https://api.example.com/reports/1 6
	// https://pay.example.com/ 1
	// https://api.example.com/items 3
}
