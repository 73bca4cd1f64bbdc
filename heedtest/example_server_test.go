package heedtest_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
)

// A server with a limit of two requests per hour states what is left, and rejects the third.
func ExampleServer() {
	s := &heedtest.Server{Limit: &throttlehttp.Middleware{
		Limiter: throttle.NewTokenBucket(throttle.PerHour(2)),
	}}
	s.Start()
	defer s.Close()

	client := s.Client() // the client under test is used here
	for range 3 {
		resp, err := client.Get(s.URL)
		if err != nil {
			fmt.Println(err)
			return
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		fmt.Println(resp.StatusCode, resp.Header.Get("X-RateLimit-Remaining"), "left")
	}
	// Output:
	// 200 1 left
	// 200 0 left
	// 429 0 left
}

// In a bubble of testing/synctest a server in memory needs no real time: this test of a client
// that waits for an hour ends immediately. It is shown as it stands in a test.
func ExampleServer_StartInMemory() {
	testWaits := func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &heedtest.Server{Respond: heedtest.Script(
				heedtest.Response{Status: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"3600"}}},
			)}
			s.StartInMemory()
			defer s.Close()

			client := heed.NewClient(&heed.Transport{
				Base:  s.Transport(),
				Retry: &heed.RetryPolicy{MaxServerWait: 2 * time.Hour, MaxElapsed: 3 * time.Hour},
			})
			resp, err := client.Get(s.URL)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if n := len(s.EarlyRetries()); n > 0 {
				t.Errorf("%d requests were sent before Retry-After had elapsed", n)
			}
		})
	}
	_ = testWaits // its parameter and body are those of a test function
}

// A server whose headers differ from those that a client expects. EpochReset, RetryDate and
// NoHeaders are ready-made EditHeader functions.
func ExampleServer_editHeader() {
	s := &heedtest.Server{
		Limit:      &throttlehttp.Middleware{Limiter: throttle.NewTokenBucket(throttle.PerHour(2))},
		EditHeader: func(h http.Header) { h.Set("X-RateLimit-Remaining", "1000") }, // a wrong number
	}
	s.Start()
	defer s.Close()

	resp, err := s.Client().Get(s.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println(resp.Header.Get("X-RateLimit-Remaining"), "of", resp.Header.Get("X-RateLimit-Limit"), "left")
	// Output:
	// 1000 of 2 left
}
