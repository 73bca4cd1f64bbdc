package quota_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/benbjohnson/clock"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// A Transport without a Quota has a Tracker of its own. A program sets Quota to change its
// settings, or to share a Tracker between Transports. Here the server states that it admits
// two requests per minute and that none is left. NoWait makes the second request fail instead
// of waiting. NeverTest switches off the request that would test whether the statement is right.
func ExampleTracker() {
	clk := clock.NewMock()
	client := heed.NewClient(&heed.Transport{
		Base:  respond(http.StatusOK, "RateLimit-Policy", `"default";q=2;w=60`, "RateLimit", `"default";r=0;t=60`),
		Clock: clk,
		Quota: &quota.Tracker{NeverTest: true, Clock: clk},
	})
	send(client, "https://api.example.com/items/1")
	send(client, "https://api.example.com/items/2")
	// Output:
	// sent: 200
	// not sent: api.example.com: quota
}

// The mode selects what a Tracker obeys. StatedOnly switches off learned rates. Disabled holds no
// requests.
func ExampleTracker_mode() {
	for _, mode := range []quota.Mode{quota.Full, quota.StatedOnly, quota.Disabled} {
		clk := clock.NewMock()
		client := heed.NewClient(&heed.Transport{
			Base:  respond(http.StatusTooManyRequests, "Retry-After", "30"),
			Clock: clk,
			Quota: &quota.Tracker{Mode: mode, Clock: clk},
		})
		for range 5 {
			send(client, "https://api.example.com/")
		}
		fmt.Print(mode, ": ")
		send(client, "https://api.example.com/")
	}
	// Output:
	// sent: 429
	// sent: 429
	// sent: 429
	// sent: 429
	// sent: 429
	// full: not sent: api.example.com: retry-after
	// sent: 429
	// sent: 429
	// sent: 429
	// sent: 429
	// sent: 429
	// stated only: not sent: api.example.com: retry-after
	// sent: 429
	// sent: 429
	// sent: 429
	// sent: 429
	// sent: 429
	// disabled: sent: 429
}

// Forget drops what is known of an account at a host, for instance after its limit was raised.
func ExampleTracker_Forget() {
	clk := clock.NewMock()
	tracker := &quota.Tracker{NeverTest: true, Clock: clk}
	client := heed.NewClient(&heed.Transport{
		Base:  respond(http.StatusOK, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600"),
		Clock: clk,
		Quota: tracker,
	})
	send(client, "https://api.example.com/items/1")
	send(client, "https://api.example.com/items/1")

	req, err := http.NewRequest(http.MethodGet, "https://api.example.com/", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	tracker.Forget(req)
	send(client, "https://api.example.com/items/1")
	// Output:
	// sent: 200
	// not sent: api.example.com: quota
	// sent: 200
}

// A server states that nothing is left for an hour. One request tests that, unless NeverTest is set, because the
// overage of the quota costs money.
func ExampleTracker_neverTest() {
	for _, never := range []bool{false, true} {
		clk := clock.NewMock()
		client := heed.NewClient(&heed.Transport{
			Base:  respond(http.StatusOK, "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "3600"),
			Clock: clk,
			Quota: &quota.Tracker{NeverTest: never, Clock: clk},
		})
		for range 2 {
			send(client, "https://api.example.com/")
		}
	}
	// Output:
	// sent: 200
	// sent: 200
	// sent: 200
	// not sent: api.example.com: quota
}

// Accounts have separate limits. By default they are distinguished by their credentials; Account
// replaces that, here by a parameter of the URL.
func ExampleTracker_account() {
	clk := clock.NewMock()
	client := heed.NewClient(&heed.Transport{
		Base:  respond(http.StatusTooManyRequests, "Retry-After", "30"),
		Clock: clk,
		Quota: &quota.Tracker{
			Account: func(r *http.Request) string { return r.URL.Query().Get("workspace") },
			Clock:   clk,
		},
	})
	for _, workspace := range []string{"blue", "blue", "blue", "blue", "blue", "green", "blue"} {
		send(client, "https://api.example.com/?workspace="+workspace)
	}
	// Output:
	// sent: 429
	// sent: 429
	// sent: 429
	// sent: 429
	// sent: 429
	// sent: 429
	// not sent: api.example.com: retry-after
}

// Headroom leaves at least this part of each quota to other programs that use the same account.
func ExampleTracker_headroom() {
	clk := clock.NewMock()
	left := 10
	base := roundTripFunc(func(r *http.Request) (*http.Response, error) {
		left--
		return respond(http.StatusOK, "RateLimit-Policy", `"default";q=10;w=60`, "RateLimit", fmt.Sprintf(`"default";r=%d;t=60`, left)).RoundTrip(r)
	})
	client := heed.NewClient(&heed.Transport{
		Base:  base,
		Clock: clk,
		Quota: &quota.Tracker{Headroom: 0.5, Clock: clk},
	})
	for range 6 {
		send(client, "https://api.example.com/")
	}
	fmt.Println(left, "of 10 left")
	// Output:
	// sent: 200
	// sent: 200
	// sent: 200
	// sent: 200
	// sent: 200
	// not sent: api.example.com: quota
	// 5 of 10 left
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// respond returns a simulated server that gives the same response to all requests.
func respond(status int, header ...string) http.RoundTripper {
	return roundTripFunc(func(r *http.Request) (*http.Response, error) {
		h := http.Header{}
		for i := 0; i < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: status, Header: h, Body: http.NoBody, Request: r}, nil
	})
}

// send sends a request without retries that fails instead of waiting, and prints the result.
func send(client *http.Client, url string) {
	ctx := heed.WithOptions(context.Background(), heed.RequestOptions{NoWait: true, NoRetry: true})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	resp, err := client.Do(req)
	var rejected *throttle.RejectedError
	if errors.As(err, &rejected) {
		fmt.Println("not sent:", rejected.Decision.Policy)
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	resp.Body.Close()
	fmt.Println("sent:", resp.StatusCode)
}
