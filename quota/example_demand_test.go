package quota_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle/queue"
)

// A program with a RoundTripper of its own uses a Tracker directly: it waits for the Demand of
// each request, and reports the response. A heed.Transport does all of this. Others wait when requests are rejected that
// were sent after the first rejection.
func ExampleTracker_Demand() {
	clk := clock.NewMock()
	tracker := &quota.Tracker{Clock: clk}
	q := &queue.Queue{Clock: clk}
	tracker.Notify(q)
	server := respond(http.StatusTooManyRequests, "Retry-After", "30")

	for range 6 {
		ctx := context.Background()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.example.com/", nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		var t queue.Ticket
		t.Add(tracker.Demand(req))
		if err := q.Try(ctx, &t); err != nil { // or q.Wait
			fmt.Println("not sent")
			continue
		}
		resp, err := server.RoundTrip(req)
		f := tracker.Feedback(req, t.Demands[0], resp, err, clk.Now(), nil)
		q.Report(ctx, &t, f)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(resp.StatusCode, f.Outcome, f.RetryAfter)
	}
	// Output:
	// 429 throttled 30s
	// 429 throttled 30s
	// 429 throttled 30s
	// 429 throttled 30s
	// 429 throttled 30s
	// not sent
}
