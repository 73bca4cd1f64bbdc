package quota_test

import (
	"fmt"
	"net/http"
	"runtime"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
)

// Events report holds and limits as they are learned, for logs. heed.Trace has the same
// functions.
func ExampleTracker_Listen() {
	clk := clock.NewMock()
	tracker := &quota.Tracker{Clock: clk, Rand: func() float64 { return 0 }}
	events := &quota.Events{
		Hold: func(h quota.HoldInfo) {
			if h.Held {
				fmt.Printf("%s: held for %v\n", h.Limit, h.For)
			}
		},
		LimitLearned: func(l quota.LimitLearnedInfo) {
			fmt.Printf("%s: %v, %d per %v\n", l.Limit, l.Change, l.Size, l.Per)
		},
	}
	tracker.Listen(events)
	defer runtime.KeepAlive(events) // the functions are called for as long as the program keeps them

	client := heed.NewClient(&heed.Transport{
		Base:  respond(http.StatusTooManyRequests, "Retry-After", "30"),
		Clock: clk,
		Quota: tracker,
	})
	for range 5 { // one rejection may concern one request
		send(client, "https://api.example.com/")
	}
	// Output:
	// sent: 429
	// sent: 429
	// sent: 429
	// sent: 429
	// api.example.com: retry-after: held for 30s
	// sent: 429
}
