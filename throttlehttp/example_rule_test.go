package throttlehttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttlehttp"
)

// serve sends a request of user through h.
func serve(h http.Handler, user string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept", "text/plain")
	r.Header.Set("X-User", user)
	h.ServeHTTP(w, r)
	return w
}

// Each user has a limit, and all users together have another.
func ExampleRule() {
	clk := clock.NewMock() // nil in a program
	each := keyed.BucketsConfig{Limit: throttle.PerMinute(2)}
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{
		{Limiter: throttle.WithClock(throttle.NewTokenBucket(throttle.PerMinute(100)), clk)},
		{
			Limiter:    throttle.WithClock(keyed.NewBuckets(each), clk),
			Key:        throttlehttp.Header("X-User"),
			MissingKey: throttlehttp.Reject,
		},
	}}
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello")
	}))
	for _, name := range []string{"ann", "ann", "ann", "bob", ""} {
		fmt.Printf("%-3s  %s", name, serve(h, name).Body)
	}
	// Output:
	// ann  hello
	// ann  hello
	// ann  Too many requests. Try again in 30 seconds.
	// bob  hello
	//      Forbidden. This request does not say whose it is.
}
