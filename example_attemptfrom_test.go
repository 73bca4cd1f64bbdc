package heed_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
)

// resendCounter is a RoundTripper below a Transport that prints what OpenTelemetry calls
// http.request.resend_count.
type resendCounter struct{ http.RoundTripper }

func (c resendCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	fmt.Println("resend count", heed.AttemptFrom(r.Context()))
	return c.RoundTripper.RoundTrip(r)
}

func ExampleAttemptFrom() {
	client := heed.NewClient(&heed.Transport{
		Base:  resendCounter{&api{503, 200}},
		Retry: &heed.RetryPolicy{Backoff: backoff.Constant(0)},
	})
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://api.example.com/items/1", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	// Output:
	// resend count 0
	// resend count 1
}
