package heedtest_test

import (
	"fmt"
	"io"
	"net/http"

	"github.com/heed-go/heed/heedtest"
)

// The server detects a client that ignores Retry-After. In a bubble of testing/synctest, with
// StartInMemory, a client could also wait without taking any time.
func ExampleScript() {
	s := &heedtest.Server{Respond: heedtest.Script(
		heedtest.Response{Fault: heedtest.CutBody, Body: "half of this will arrive"},
		heedtest.Response{Status: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {"60"}}, Body: "closed"},
	)}
	s.Start()
	defer s.Close()

	client := s.Client() // the client under test is used here
	for range 3 {
		resp, err := client.Get(s.URL)
		if err != nil {
			panic(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		fmt.Printf("%d %q %v\n", resp.StatusCode, body, err)
	}
	fmt.Printf("%d of %d came too early\n", len(s.EarlyRetries()), len(s.Requests()))
	// Output:
	// 200 "half of this" unexpected EOF
	// 503 "closed" <nil>
	// 429 "too early: Retry-After has not elapsed\n" <nil>
	// 1 of 3 came too early
}
