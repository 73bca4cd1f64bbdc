package main

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
)

// startSpan is the time over which clients with start jitter spread their first requests.
const startSpan = 30 * time.Second

// A strategy is a way to send requests until the server serves them.
type strategy struct {
	name string

	// client returns the client of one device.
	client func(id int, network http.RoundTripper) doer
}

// A doer makes one call: it returns nil when the server has served it.
type doer func(context.Context) error

var strategies = []strategy{
	{"no jitter", loopWith(backoff.Exponential{Jitter: backoff.None}, loop{})},
	{"Retry-After, no jitter", loopWith(backoff.Exponential{Jitter: backoff.None}, loop{obeys: true})},
	{"plus/minus 50 %", loopWith(backoff.Exponential{Jitter: backoff.PlusMinus}, loop{})},
	{"full jitter", loopWith(backoff.Exponential{Jitter: backoff.Full}, loop{})},
	{"decorrelated jitter", loopWith(backoff.Exponential{Jitter: backoff.Decorrelated}, loop{})},
	{"start and full jitter", loopWith(backoff.Exponential{Jitter: backoff.Full}, loop{startSpan: startSpan})},
	{"heed", heedWith(0)},
	{"heed, StartJitter", heedWith(startSpan)},
}

// A loop is a retry loop of a few lines, as many programs have one.
type loop struct {
	client *http.Client
	policy backoff.Policy
	obeys  bool // Retry-After replaces the delay of policy

	startSpan  time.Duration
	firstDelay time.Duration // less than startSpan
}

// loopWith returns clients whose delays are 500 ms, 1 s, 2 s ... up to 30 s before jitter.
func loopWith(policy backoff.Exponential, l loop) func(int, http.RoundTripper) doer {
	return func(id int, network http.RoundTripper) doer {
		l, policy := l, policy
		policy.Rand = randomOf(id)
		l.client, l.policy = &http.Client{Transport: network}, policy
		l.firstDelay = backoff.OffsetFor(device(id)).In(l.startSpan)
		return l.do
	}
}

func (l loop) do(ctx context.Context) error {
	if err := sleep(ctx, l.firstDelay); err != nil {
		return err
	}
	var delay time.Duration
	for attempt := 1; ; attempt++ {
		resp, err := send(ctx, l.client)
		if err != nil {
			return err
		}
		if resp.StatusCode == http.StatusOK {
			return nil
		}
		delay = l.policy.Delay(attempt, delay)
		if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && l.obeys {
			delay = time.Duration(seconds) * time.Second
		}
		if err := sleep(ctx, delay); err != nil {
			return err
		}
	}
}

// heedWith returns clients that use heed. Only the number of attempts and their total time
// differ from its defaults: they are not limited, as in the other strategies. The sources of
// random numbers make runs repeatable.
func heedWith(startJitter time.Duration) func(int, http.RoundTripper) doer {
	return func(id int, network http.RoundTripper) doer {
		client := heed.NewClient(&heed.Transport{
			Base:        network,
			Quota:       &quota.Tracker{Rand: randomOf(id)},
			StartJitter: startJitter,
			StartSeed:   device(id),
			Retry: &heed.RetryPolicy{
				MaxAttempts: 1000, MaxBackoff: -1, MaxElapsed: -1,
				Backoff:          backoff.Exponential{Rand: randomOf(id)},
				RetryAfterJitter: backoff.RetryAfterJitter{Rand: randomOf(id)},
			},
		})
		return func(ctx context.Context) error {
			_, err := send(ctx, client)
			return err
		}
	}
}

// send sends a request and closes the body of the response.
func send(ctx context.Context, client *http.Client) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example.com/readings", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	return resp, resp.Body.Close()
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func device(id int) string { return "device " + strconv.Itoa(id) }

// randomOf returns a source of random numbers for one client.
func randomOf(id int) func() float64 {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(uint64(id), 1))
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return r.Float64()
	}
}
