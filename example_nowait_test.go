package heed_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
)

// A request for a page that a user looks at fails immediately instead of waiting for a
// limit. The error states when to ask again.
func ExampleRequestOptions_noWait() {
	client := heed.NewClient(&heed.Transport{
		Base:    &api{200}, // simulates the server; leave it out in a program
		Limiter: throttle.NewTokenBucket(throttle.PerHour(1)),
	})
	ctx := heed.WithOptions(context.Background(), heed.RequestOptions{NoWait: true})
	for range 2 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/items/1", nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, err := client.Do(req)
		var rejected *throttle.RejectedError
		if errors.Is(err, heed.ErrMaxWait) && errors.As(err, &rejected) {
			fmt.Println("rejected by", rejected.Decision.Policy, "- minutes to wait:", rejected.Decision.Wait.Round(time.Minute).Minutes())
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// 200
	// rejected by 1 per 1h0m0s - minutes to wait: 60
}
