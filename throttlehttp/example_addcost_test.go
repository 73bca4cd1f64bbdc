package throttlehttp_test

import (
	"context"
	"fmt"
	"net/http"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
)

// The cost of a request is known only after it has been served: the handler reports the
// number of tokens.
func ExampleAddCost() {
	clk := clock.NewMock()
	tokens := throttle.WithClock(throttle.NewTokenBucket(throttle.PerMinute(1000)), clk)
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{
		Limiter:   tokens,
		Cost:      func(*http.Request) int64 { return 100 }, // the expected cost
		FinalCost: func(_ *http.Request, a throttlehttp.Response) int64 { return a.AddedCost },
	}}}
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 3 {
			throttlehttp.AddCost(r.Context(), 150)
		}
	}))
	serve(h, "ann")
	d, _ := tokens.Reserve(context.Background(), throttle.Claim{DryRun: true})
	fmt.Println(d.Remaining, "of", d.Limit, "left")
	// Output: 550 of 1000 left
}
