package heed_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
)

// A log of what delays or ends requests. The records contain no path and no query.
func ExampleLogTrace() {
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{} // so that the output of the example is the same each time
		}
		return a
	}}))
	client := heed.NewClient(&heed.Transport{
		Base:  &api{http.StatusServiceUnavailable}, // simulates the server; leave it out in a program
		Trace: heed.LogTrace(logger),
		Retry: &heed.RetryPolicy{MaxAttempts: 2, Backoff: backoff.Constant(0)},
	})
	resp, err := client.Get("https://api.example.com/items/1?key=secret")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	// Output:
	// level=INFO msg="attempt 1 failed with status 503: retry now" method=GET host=api.example.com attempt=1 status=503 delay=0s
	// level=WARN msg="gave up: heed: no attempts are left: RetryPolicy.MaxAttempts is 2 (after 2 attempts, the last with status 503)" method=GET host=api.example.com attempts=2 status=503 queue_wait=0s backoff_wait=0s
}
