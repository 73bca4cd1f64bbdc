package retryable_test

import (
	"fmt"
	"net/http"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/retryable"
	"github.com/heed-go/heed/throttle"
)

// A program keeps its client and no longer sends an order twice.
func Example() {
	busy := heedtest.Response{Status: 429, Header: http.Header{"Retry-After": {"0"}}}
	api := &heedtest.Server{Respond: heedtest.Script(busy, heedtest.Response{Status: 201}, heedtest.Response{Status: 500, Body: "perhaps done"})}
	api.Start()
	defer api.Close()

	client := retryablehttp.NewClient()
	client.Logger = nil
	client.CheckRetry, client.Backoff = retryable.CheckRetry, retryable.Backoff
	retryable.Wrap(client, &heed.Transport{Limiter: throttle.NewTokenBucket(throttle.PerSecond(100))})

	for range 2 {
		resp, err := client.Post(api.URL+"/orders", "text/plain", []byte("one of each"))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode, "after", len(api.Requests()), "requests")
	}
	// Output:
	// 201 after 2 requests
	// 500 after 3 requests
}
