package heed_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
)

// One request per minute to each host, and three to all hosts together. A request takes a
// unit of both limits or of none.
func ExamplePerHost() {
	perHost := &keyed.Limiter{New: func(string) throttle.Limiter {
		return throttle.NewTokenBucket(throttle.PerMinute(1))
	}}
	all := throttle.NewTokenBucket(throttle.Limit{Name: "all hosts", Count: 3, Per: time.Hour, Burst: 3})
	client := heed.NewClient(&heed.Transport{
		Base:    &api{200}, // simulates the servers; leave it out in a program
		Limiter: perHost,
		Key:     heed.PerHost,
		Limits: func(_ *http.Request, t *queue.Ticket) error {
			t.Add(throttle.Demand{Limiter: all})
			return nil
		},
	})
	ctx := heed.WithOptions(context.Background(), heed.RequestOptions{NoWait: true})
	for _, url := range []string{
		"https://a.example.com/1",
		"https://A.example.com:443/2", // the same host
		"https://b.example.com/1",
		"https://c.example.com/1",
		"https://d.example.com/1",
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		resp, err := client.Do(req)
		var rejected *throttle.RejectedError
		if errors.As(err, &rejected) {
			fmt.Printf("%s: limit %q, key %q\n", url, rejected.Decision.Policy, rejected.Key)
			continue
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		resp.Body.Close()
		fmt.Println(url, resp.StatusCode)
	}
	// Output:
	// https://a.example.com/1 200
	// https://A.example.com:443/2: limit "1 per 1m0s", key "https://a.example.com"
	// https://b.example.com/1 200
	// https://c.example.com/1 200
	// https://d.example.com/1: limit "all hosts", key ""
}
