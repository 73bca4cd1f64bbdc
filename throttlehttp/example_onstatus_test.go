package throttlehttp_test

import (
	"fmt"
	"net/http"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttlehttp"
)

// Only failed logins count: three per hour for each user.
func ExampleOnStatus() {
	clk := clock.NewMock()
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{
		Limiter:   throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(3)}), clk),
		Key:       throttlehttp.Header("X-User"),
		FinalCost: throttlehttp.OnStatus(http.StatusUnauthorized),
		Hidden:    true, // clients must not see how many guesses are left
	}}}
	right := map[int]bool{1: true, 2: true, 5: true, 7: true}
	n := 0
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !right[n] {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	for n = 1; n <= 7; n++ {
		w := serve(h, "ann")
		fmt.Printf("login %d right: %-5v  %d %q\n", n, right[n], w.Code, w.Header().Get("Retry-After"))
	}
	// Output:
	// login 1 right: true   200 ""
	// login 2 right: true   200 ""
	// login 3 right: false  401 ""
	// login 4 right: false  401 ""
	// login 5 right: true   200 ""
	// login 6 right: false  401 ""
	// login 7 right: true   429 "1200"
}
