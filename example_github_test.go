package heed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
)

// GitHub allows an account 5,000 requests per hour, and asks for few concurrent ones. A
// request must pass both limits; what GitHub states in its headers is obeyed in addition.
// A token bucket would permit twice as many requests in the first hour: its burst, and what
// it is refilled with.
// The limit of concurrent requests counts a response until its body is closed.
func Example_github() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }))
	defer server.Close()

	client := heed.NewClient(&heed.Transport{Limiter: throttle.AllOf(
		throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.PerHour(5000)}),
		throttle.NewConcurrency(throttle.ConcurrencyConfig{Name: "concurrent", Count: 10}),
	)})
	ctx := heed.WithOptions(context.Background(), heed.RequestOptions{NoWait: true})
	get := func() (*http.Response, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/repos/golang/go", nil)
		if err != nil {
			return nil, err
		}
		return client.Do(req)
	}

	var open []*http.Response
	for {
		resp, err := get()
		if errors.Is(err, heed.ErrMaxWait) {
			var rejected *throttle.RejectedError
			errors.As(err, &rejected)
			fmt.Println(len(open), "responses are open; the limit is:", rejected.Decision.Policy)
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		open = append(open, resp)
	}
	open[0].Body.Close()
	resp, err := get()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(resp.StatusCode, "after one was closed")
	// Output:
	// 10 responses are open; the limit is: concurrent
	// 200 after one was closed
}
