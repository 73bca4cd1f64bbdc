package throttlehttp_test

import (
	"fmt"
	"net/http"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttlehttp"
)

// Shadow tries out a limit without rejecting requests. Responses do not state the limit.
func ExampleMiddleware_shadow() {
	clk := clock.NewMock()
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{
		Limiter: throttle.Shadow(
			throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerMinute(1)}), clk),
			func(c throttle.Claim, d throttle.Decision) {
				fmt.Println("would be rejected:", c.Key, "for", d.Wait)
			},
		),
		Key: throttlehttp.Header("X-User"),
	}}}
	h := m.Handler(http.NotFoundHandler())
	for _, name := range []string{"ann", "bob", "ann"} {
		fmt.Println(name, serve(h, name).Code)
	}
	// Output:
	// ann 404
	// bob 404
	// would be rejected: header.X-User:ann for 1m0s
	// ann 404
}
