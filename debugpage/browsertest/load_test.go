package browsertest

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/debugpage"
	"github.com/heed-go/heed/throttle"
)

// A load sends requests through a Transport to servers that limit in different ways, until
// the test ends.
type load struct {
	page *debugpage.Page

	mu   sync.Mutex
	sent map[string]int // by host
}

// startLoad starts the load and returns its page.
func startLoad(t *testing.T) *load {
	l := &load{page: &debugpage.Page{Title: "report service"}, sent: map[string]int{}}
	client := &heed.Transport{
		Base:  l,
		Trace: l.page.Trace(),
		Retry: &heed.RetryPolicy{MaxAttempts: 3, Backoff: backoff.Exponential{Base: 50 * time.Millisecond}, Budget: &backoff.Budget{MinPerSecond: 3}},
	}
	exports := &heed.Transport{
		Base:    l,
		Trace:   l.page.Trace(),
		Limiter: throttle.NewTokenBucket(throttle.Limit{Name: "exports", Count: 4, Per: time.Second, Burst: 4}),
		Quota:   client.Parts().Quota,
	}
	l.page.Add("reports", client)
	l.page.Add("exports", exports)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for _, j := range []job{
		{client, "https://api.github.com/repos/a/b/issues?token=secret", 3, 100 * time.Millisecond},
		{client, "https://api.github.com/search/code", 2, time.Second},
		{client, "https://api.openai.com/v1/responses", 2, 300 * time.Millisecond},
		{client, "https://hooks.slack.com/services/secret", 4, 200 * time.Millisecond},
		{client, "https://legacy.example.com/feed", 6, 20 * time.Millisecond},
		{client, "https://flaky.example.com/items", 2, 400 * time.Millisecond},
		{client, "https://healthy.example.com/items", 2, 50 * time.Millisecond},
		{exports, "https://files.example.com/export", 12, 50 * time.Millisecond},
	} {
		for range j.workers {
			running.Go(func() { j.work(ctx) })
		}
	}
	return l
}

// A job is a number of workers that get the same URL again and again.
type job struct {
	transport *heed.Transport
	url       string
	workers   int
	pause     time.Duration
}

func (j job) work(ctx context.Context) {
	client := heed.NewClient(j.transport)
	for ctx.Err() == nil {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, j.url, nil)
		if err != nil {
			panic(err)
		}
		req.Header.Set("Authorization", "Bearer secret")
		if resp, err := client.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(j.pause):
		}
	}
}

// RoundTrip implements http.RoundTripper: it responds as the server of the request.
func (l *load) RoundTrip(req *http.Request) (*http.Response, error) {
	select {
	case <-req.Context().Done():
		return nil, req.Context().Err()
	case <-time.After(30 * time.Millisecond):
	}
	l.mu.Lock()
	l.sent[req.URL.Host]++
	n := l.sent[req.URL.Host]
	l.mu.Unlock()
	status, h := respond(req.URL.Host, req.URL.Path, n, time.Now())
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(strings.NewReader("")), Request: req,
	}, nil
}

// respond returns the response of a server to its request n.
func respond(host, path string, n int, now time.Time) (int, http.Header) {
	h := http.Header{}
	set := func(pairs ...string) {
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
	}
	switch host {
	case "api.github.com":
		limit, resource, reset := 5000, "core", now.Truncate(time.Hour).Add(time.Hour)
		left := max(4300-n, 0)
		if strings.HasPrefix(path, "/search") {
			limit, resource, reset = 30, "search", now.Truncate(time.Minute).Add(time.Minute)
			left = 3
		}
		set("X-RateLimit-Limit", strconv.Itoa(limit), "X-RateLimit-Remaining", strconv.Itoa(left),
			"X-RateLimit-Reset", strconv.FormatInt(reset.Unix(), 10), "X-RateLimit-Resource", resource)
	case "api.openai.com":
		set("x-ratelimit-limit-requests", "500", "x-ratelimit-remaining-requests", strconv.Itoa(max(420-n, 0)), "x-ratelimit-reset-requests", "40s",
			"x-ratelimit-limit-tokens", "200000", "x-ratelimit-remaining-tokens", strconv.Itoa(max(21000-n*10, 0)), "x-ratelimit-reset-tokens", "53s")
	case "hooks.slack.com":
		if n > 3 {
			set("Retry-After", "90")
			return http.StatusTooManyRequests, h
		}
	case "legacy.example.com":
		if n%7 == 0 {
			return http.StatusTooManyRequests, h
		}
	case "flaky.example.com":
		if n%3 != 0 {
			return http.StatusServiceUnavailable, h
		}
	}
	return http.StatusOK, h
}
