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

// Each API key has a limit, whether it is sent in a header or in the URL. Requests without one
// are rejected.
func ExampleAPIKeyQuery() {
	limit := keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerMinute(1)})
	m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{
		Limiter:    throttle.WithClock(limit, clock.NewMock()),
		Key:        throttlehttp.FirstOf(throttlehttp.APIKey, throttlehttp.APIKeyQuery("key")),
		MissingKey: throttlehttp.Reject,
	}}}
	h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, url := range []string{"/?key=one", "/?key=one", "/?key=two", "/"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, url, nil))
		fmt.Println(w.Code, url)
	}
	// Output:
	// 200 /?key=one
	// 429 /?key=one
	// 200 /?key=two
	// 403 /
}
