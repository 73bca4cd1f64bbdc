package heed_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/benbjohnson/clock"
	"github.com/sony/gobreaker/v2"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// An api responds with the given status codes, one per request, and repeats the last one.
type api []int

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	resp := &http.Response{StatusCode: (*a)[0], Header: http.Header{}, Body: http.NoBody, Request: r}
	if len(*a) > 1 {
		*a = (*a)[1:]
	}
	return resp, nil
}

func Example() {
	client := heed.NewClient(&heed.Transport{
		Base:  &api{503, 502, 200}, // simulates the server; leave it out in a program
		Retry: &heed.RetryPolicy{Backoff: backoff.Constant(0)},
	})
	resp, err := client.Get("https://api.example.com/items/1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	info, _ := heed.InfoFrom(resp)
	fmt.Println(resp.StatusCode, "after", info.Attempts, "attempts")
	// Output: 200 after 3 attempts
}

// A POST is not retried after a 500, because it may have been processed.
// RequestOptions.Idempotent allows the retry.
func ExampleWithOptions() {
	for _, idempotent := range []bool{false, true} {
		client := heed.NewClient(&heed.Transport{Base: &api{500, 200}, Retry: &heed.RetryPolicy{Backoff: backoff.Constant(0)}})
		ctx := heed.WithOptions(context.Background(), heed.RequestOptions{Idempotent: idempotent})
		req, _ := http.NewRequestWithContext(ctx, "POST", "https://api.example.com/items", strings.NewReader("{}"))
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(idempotent, resp.StatusCode)
	}
	// Output:
	// false 500
	// true 200
}

// Two limits apply to some requests. The program moves the clock.
func ExampleTransport_limits() {
	clk := clock.NewMock()
	account := throttle.WithClock(throttle.NewTokenBucket(throttle.PerSecond(100)), clk)
	search := throttle.WithClock(throttle.NewTokenBucket(throttle.PerMinute(1)), clk)
	client := heed.NewClient(&heed.Transport{
		Base:  &api{200},
		Clock: clk,
		Limits: func(r *http.Request, t *queue.Ticket) error {
			t.Add(throttle.Demand{Limiter: account})
			if r.URL.Path == "/search" {
				t.Add(throttle.Demand{Limiter: search})
			}
			return nil
		},
	})
	for _, path := range []string{"/search", "/items", "/search"} {
		ctx := heed.WithOptions(context.Background(), heed.RequestOptions{MaxWait: time.Second})
		req, _ := http.NewRequestWithContext(ctx, "GET", "https://api.example.com"+path, nil)
		resp, err := client.Do(req)
		if err != nil {
			fmt.Println(path, "has to wait too long:", errors.Is(err, heed.ErrMaxWait))
			continue
		}
		resp.Body.Close()
		fmt.Println(path, resp.StatusCode)
	}
	// Output:
	// /search 200
	// /items 200
	// /search has to wait too long: true
}

// The breaker of another library stops requests: while it is open, nothing is sent, and no request waits for a limit.
func ExampleBreaker() {
	breaker := gobreaker.NewTwoStepCircuitBreaker[any](gobreaker.Settings{
		ReadyToTrip: func(c gobreaker.Counts) bool { return c.ConsecutiveFailures == 3 },
		IsExcluded:  func(err error) bool { return errors.Is(err, context.Canceled) }, // canceled, or not sent
	})
	client := heed.NewClient(&heed.Transport{
		Base:    &api{500},
		Breaker: func(*http.Request) heed.Breaker { return breaker },
		Retry:   &heed.RetryPolicy{MaxAttempts: 3, Backoff: backoff.Constant(0)},
	})
	for range 2 {
		resp, err := client.Get("https://api.example.com/items/1")
		if err != nil {
			fmt.Println(errors.Is(err, gobreaker.ErrOpenState))
			continue
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode)
	}
	// Output:
	// 500
	// true
}
