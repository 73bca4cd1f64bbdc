package monitor_test

import (
	"context"
	"fmt"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/rules/monitor"
	"github.com/heed-go/heed/throttle/queue"
)

// A Registry is the rules.DecisionHook of a file, and recommends a change for each limit.
func ExampleRegistry() {
	clk := clock.NewMock()
	registry := &monitor.Registry{}
	set, err := rules.Parse([]byte(`
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 60}
  - key: country
    rate_limit: {unit: minute, requests_per_unit: 100000}
`), rules.Config{DecisionHook: registry, Clock: clk})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 1000 { // ann sends 75 requests per minute
		var t queue.Ticket
		set.Add(&t, rules.Descriptor{{Key: "user", Value: "ann"}}, rules.Descriptor{{Key: "country", Value: "AT"}})
		if _, err := t.Reserve(context.Background(), clk.Now().Add(time.Duration(i)*800*time.Millisecond)); err != nil {
			fmt.Println(err)
		}
	}
	for _, l := range set.All() {
		fmt.Printf("%s: %v\n", l.Policy(), registry.Recommend(l))
	}
	user := registry.Stats(set.All()[0])
	fmt.Println(user.TopRejectedCleartext(1)[0].Key, "was rejected most often,", user.Snapshot().Rejected, "times")
	// Output:
	// shop/user: Raise to 80 per 1m0s: 19.5 % of all claims were rejected, from keys that need no more than that.
	// shop/country: Keep it: it rejects 0.0 % of all claims.
	// ann was rejected most often, 195 times
}
