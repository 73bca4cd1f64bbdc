package heedtest_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/heed-go/heed/heedtest"
)

// A test of a client that sends an order and reads it. Routes responds by method and path; the
// scripts of the routes must be used up.
func ExampleExactScript() {
	testOrder := func(t *testing.T) {
		s := &heedtest.Server{Respond: heedtest.Routes(map[string]func(heedtest.Request) heedtest.Response{
			"POST /orders":     heedtest.ExactScript(t, heedtest.Response{Status: http.StatusServiceUnavailable}, heedtest.Response{Status: http.StatusCreated}),
			"GET /orders/{id}": heedtest.ExactScript(t, heedtest.Response{Body: `{"state": "paid"}`}),
		})}
		s.Start()
		defer s.Close()
		_ = s.Client() // the client under test is used here
	}
	_ = testOrder // TestOrder in a program
}

// A client that sends one request, and a minute later 20 requests in 20 ms.
func ExampleBusiest() {
	start := time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
	requests := []heedtest.Request{{N: 1, At: start}} // those of Server.Requests in a test
	for i := range 20 {
		requests = append(requests, heedtest.Request{N: i + 2, At: start.Add(time.Minute + time.Duration(i)*time.Millisecond)})
	}
	busiest := heedtest.Busiest(requests, time.Second)
	fmt.Println(len(busiest), "requests in a second, from request", busiest[0].N)
	// Output: 20 requests in a second, from request 2
}
