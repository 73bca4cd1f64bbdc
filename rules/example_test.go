package rules_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttlehttp"
)

// The limits of a file apply to the requests of a client. Set.Limits works for a server too.
func Example() {
	set, err := rules.Parse([]byte(`
domain: api
values:
  user: {header: X-User}
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 100, burst: 20, soft: 10%}
limits:
  - name: search
    match: GET /search/{index}
    key: [user, "{index}"]
    rate_limit: {unit: hour, requests_per_unit: 2, algorithm: sliding_log}
`), rules.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(set)

	server := (&throttlehttp.Middleware{Limits: set.Limits}).Handler(http.NotFoundHandler())
	for _, user := range []string{"ann", "ann", "ann", "bob"} {
		r := httptest.NewRequest(http.MethodGet, "/search/books", nil)
		r.Header.Set("X-User", user)
		w := httptest.NewRecorder()
		server.ServeHTTP(w, r)
		fmt.Println(user, w.Code)
	}
	// Output:
	// domain api: 2 limits
	// value user: header X-User
	// 7:17   api/user    token_bucket 100 per 1m, burst 20, and marked up to 110 per 1m, burst 22; each user; 65536 keys
	// 12:17  api:search  sliding_log 2 per 1h; matches GET /search/{index}; each user, {index}; 65536 keys; named search
	// ann 404
	// ann 404
	// ann 429
	// bob 404
}
