package heed_test

import (
	"fmt"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
)

// A 403 is final, unless requests like it have just succeeded: then it is retried once.
func ExampleRetryPolicy_forbidden() {
	statuses := api{403, 200, 200, 200, 200, 200, 200, 200, 200, 200, 200, 403, 200}
	client := heed.NewClient(&heed.Transport{
		Base:  &statuses, // simulates the server; leave it out in a program
		Retry: &heed.RetryPolicy{Backoff: backoff.Constant(0)},
	})
	for n := range 12 {
		resp, err := client.Get(fmt.Sprintf("https://api.example.com/items/%d", n))
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		if info, ok := heed.InfoFrom(resp); ok || resp.StatusCode != 200 {
			fmt.Printf("item %d: %d, retries: %d\n", n, resp.StatusCode, max(info.Attempts-1, 0))
		}
	}
	// Output:
	// item 0: 403, retries: 0
	// item 11: 200, retries: 1
}
