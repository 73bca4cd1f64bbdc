package throttlehttp_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
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

// Shadow tries out a limit without rejecting requests.
func ExampleMiddleware_shadow() {
	clk := clock.NewMock()
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{
		Limiter: &throttle.SoftLimit{
			Soft: throttle.WithClock(keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerMinute(1)}), clk),
			OnOverLimit: func(c throttle.Claim, d throttle.Decision) {
				fmt.Println("would have refused", c.Key, "for", d.Wait)
			},
		},
		Key:    throttlehttp.Header("X-User"),
		Hidden: true, // clients should not see the limit yet
	}}}
	h := m.Handler(http.NotFoundHandler())
	for _, name := range []string{"ann", "bob", "ann"} {
		fmt.Println(name, serve(h, name).Code)
	}
	// Output:
	// ann 404
	// bob 404
	// would have refused header.X-User:ann for 1m0s
	// ann 404
}

// Early requests are delayed: one request per 10 ms, and at most two waiting requests.
func ExampleMiddleware_queue() {
	m := &throttlehttp.Middleware{
		Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 100, Per: time.Second, Burst: 1}),
		Queue:   &queue.Queue{MaxWait: time.Minute, MaxPerClass: 2},
	}
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {}))
	var all sync.WaitGroup
	var mu sync.Mutex
	served := 0
	for range 3 {
		all.Go(func() {
			if serve(h, "ann").Code == http.StatusOK {
				mu.Lock()
				served++
				mu.Unlock()
			}
		})
	}
	all.Wait()
	fmt.Println(served, "served")
	// Output: 3 served
}
