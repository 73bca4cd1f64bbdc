package rules_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
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

// Programs that supply keys and values themselves use descriptors.
func ExampleSet_Add() {
	set, err := rules.Load("testdata/envoy/example2.yaml", rules.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for range 6 {
		var t queue.Ticket
		set.Add(&t,
			rules.Descriptor{{Key: "message_type", Value: "marketing"}, {Key: "to_number", Value: "2061111111"}},
			rules.Descriptor{{Key: "to_number", Value: "2061111111"}})
		d, err := t.Reserve(context.Background(), now)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%v %q\n", d.OK, d.Policy)
	}
	// Output:
	// true ""
	// true ""
	// true ""
	// true ""
	// true ""
	// false "messaging/message_type=marketing/to_number"
}

// Lint reports parts of a file that probably have an unintended effect.
func ExampleLint() {
	found, err := rules.Lint([]byte(`
domain: api
limits:
  - {name: all, rate_limit: {unit: minute, requests_per_unit: 100}}
  - {name: search, match: /search, rate_limit: {unit: minute, requests_per_unit: 200, granularity: 15s}}
  - {name: files, match: /files/, rate_limit: {unit: minute, requests_per_unit: 100}}
`), rules.Config{})
	for _, f := range found {
		fmt.Println(f.Problem)
	}
	fmt.Println(err)
	// Output:
	// at the edge of two windows twice as many are granted: here 200 (so in 2 of 3 limits)
	// a request counts up to 15s too short, which is 25 % of 1m
	// it never refuses: all in line 4 lets no more than 100 per 1m from the epoch through
	// <nil>
}

// Limits that several processes share are kept in a store. Build returns a limiter for each
// algorithm that the store supports; all other limits are kept in this process.
func ExampleConfig_build() {
	shared := func(l throttle.Limit) throttle.Limiter { // in place of a store such as Redis
		fmt.Println("shared:", l.Name, l)
		return keyed.NewBuckets(keyed.BucketsConfig{Limit: l})
	}
	_, err := rules.Parse([]byte(`
domain: api
descriptors:
  - key: remote_address
    rate_limit: {unit: second, requests_per_unit: 10, algorithm: token_bucket}
  - key: method
    rate_limit: {concurrency: 100}
`), rules.Config{Build: func(l *rules.Limit) (throttle.Limiter, error) {
		if spec, ok := l.Spec.(throttle.Limit); ok {
			return shared(spec), nil
		}
		return nil, nil
	}})
	fmt.Println(err)
	// Output:
	// shared: api/remote_address 10 per 1s
	// <nil>
}
