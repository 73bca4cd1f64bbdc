package quota_test

import (
	"fmt"
	"net/http"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// The documentation of the API names a limit that its responses do not state.
func ExampleTracker_Declare() {
	clk := clock.NewMock()
	tracker := &quota.Tracker{Clock: clk}
	if err := tracker.Declare("api.example.com", throttle.PerMinute(2)); err != nil {
		fmt.Println(err)
		return
	}
	for range 3 {
		req, err := http.NewRequest(http.MethodGet, "https://api.example.com/items", nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		d, err := tracker.Demand(req).Limiter.Reserve(req.Context(), throttle.Claim{})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(d.OK, d.Policy, d.Wait)
	}
	// Output:
	// true api.example.com: quota 0s
	// true api.example.com: quota 0s
	// false api.example.com: quota 1m0s
}
