package heed_test

import (
	"fmt"
	"net/http"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
)

// A 403 that states nothing about limits is final. A program that knows that those of its server are temporary
// retries them by ShouldRetry.
func ExampleRetryPolicy_forbidden() {
	statuses := api{403, 200}
	client := heed.NewClient(&heed.Transport{
		Base: &statuses, // simulates the server; leave it out in a program
		Retry: &heed.RetryPolicy{
			Backoff: backoff.Constant(0),
			ShouldRetry: func(_ *http.Request, resp *http.Response, _ error, retry bool) (bool, error) {
				return retry || resp != nil && resp.StatusCode == http.StatusForbidden, nil
			},
		},
	})
	resp, err := client.Get("https://api.example.com/items/1")
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	info, _ := heed.InfoFrom(resp)
	fmt.Println(resp.StatusCode, info.Attempts)
	// Output: 200 2
}
