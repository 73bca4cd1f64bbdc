package heed_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
)

// A Trace sees each event of a request, here for a log. JoinTraces adds another one, for
// example for metrics.
func ExampleTrace() {
	log := &heed.Trace{
		AttemptDone: func(r *http.Request, i heed.AttemptInfo) {
			fmt.Println("attempt", i.Attempt, r.URL.Path, i.Status, i.Outcome)
		},
		Retry: func(_ *http.Request, i heed.RetryInfo) {
			fmt.Println("retry after", i.Delay)
		},
		Done: func(_ *http.Request, i heed.DoneInfo) {
			fmt.Println("gave up after", i.Attempts, "attempts:", i.StopReason)
		},
	}
	sent := 0
	metrics := &heed.Trace{AttemptStart: func(*http.Request, heed.AttemptInfo) { sent++ }}
	client := heed.NewClient(&heed.Transport{
		Base:  &api{503}, // simulates the server; leave it out in a program
		Trace: heed.JoinTraces(log, metrics),
		Retry: &heed.RetryPolicy{MaxAttempts: 2, Backoff: backoff.Constant(0)},
	})
	resp, err := client.Get("https://api.example.com/items/1")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	fmt.Println(sent, "sent")
	// Output:
	// attempt 1 /items/1 503 failed
	// retry after 0s
	// attempt 2 /items/1 503 failed
	// gave up after 2 attempts: heed: no attempts are left: RetryPolicy.MaxAttempts is 2
	// 2 sent
}

// A trace for one request, in addition to that of the Transport.
func ExampleWithTrace() {
	client := heed.NewClient(&heed.Transport{
		Base:  &api{500, 200}, // simulates the server; leave it out in a program
		Retry: &heed.RetryPolicy{Backoff: backoff.Constant(0)},
	})
	attempts := 0
	ctx := heed.WithTrace(context.Background(), &heed.Trace{
		AttemptDone: func(*http.Request, heed.AttemptInfo) { attempts++ },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/items/1", nil)
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
	fmt.Println(resp.StatusCode, "after", attempts, "attempts")
	// Output: 200 after 2 attempts
}
