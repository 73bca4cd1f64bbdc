package throttlehttp_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

func ExampleMiddleware() {
	clk := clock.NewMock() // nil in a program
	m := &throttlehttp.Middleware{
		// All requests share the limit. A Rule has one for each client, and its MissingKey says what happens to those without a key.
		Limiter: throttle.WithClock(throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: 10 * time.Second, Burst: 2}), clk),
		// The default: if the limiter fails, as one on Redis may, requests are served without it. True rejects them with 503.
		FailClosed: false,
	}
	h := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "hello")
	}))
	for range 4 {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", "text/plain")
		h.ServeHTTP(w, r)
		header := w.Header()
		fmt.Printf("%d  %s of %s left, full in %s s  Retry-After %q  %s", w.Code, header.Get("X-RateLimit-Remaining"),
			header.Get("X-RateLimit-Limit"), header.Get("X-RateLimit-Reset"), header.Get("Retry-After"), w.Body)
		clk.Add(2500 * time.Millisecond)
	}
	// Output:
	// 200  1 of 2 left, full in 10 s  Retry-After ""  hello
	// 200  0 of 2 left, full in 18 s  Retry-After ""  hello
	// 429  0 of 2 left, full in 15 s  Retry-After "5"  Too many requests. Try again in 5 seconds.
	// 429  0 of 2 left, full in 13 s  Retry-After "3"  Too many requests. Try again in 3 seconds.
}

// All requests share one limit, and large uploads also count for another.
func ExampleMiddleware_limits() {
	clk := clock.NewMock()
	all := throttle.WithClock(throttle.NewTokenBucket(throttle.PerSecond(100)), clk)
	writes := throttle.WithClock(throttle.NewTokenBucket(throttle.PerMinute(10)), clk)
	m := &throttlehttp.Middleware{Limits: func(r *http.Request, t *queue.Ticket) error {
		t.Add(throttle.Demand{Limiter: all})
		if r.Method != http.MethodGet {
			t.Add(throttle.Demand{Limiter: writes, Cost: 1 + max(r.ContentLength, 0)/1000})
		}
		return nil
	}}
	h := m.Handler(http.NotFoundHandler())
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodGet} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, "/", nil)
		r.ContentLength = 6500
		h.ServeHTTP(w, r)
		fmt.Println(method, w.Header().Get("X-RateLimit-Remaining"), "of", w.Header().Get("X-RateLimit-Limit"))
	}
	// Output:
	// GET 99 of 100
	// PUT 3 of 10
	// GET 97 of 100
}
