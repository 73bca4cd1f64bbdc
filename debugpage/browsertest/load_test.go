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
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// A load sends requests through a Transport to servers that limit in different ways, until
// the test ends.
type load struct {
	page *debugpage.Page

	mu       sync.Mutex
	core     window
	search   window
	model    window
	legacy   throttle.Limiter
	hooks    int // requests to hooks.slack.com
	inFlight int // requests to busy.example.com
}

// A window is a limit of a server, which rejects the requests that exceed it.
type window struct {
	limit, used int
	per         time.Duration
	end         time.Time
}

// take counts a request, unless it exceeds the limit. It returns how many are left.
func (w *window) take(now time.Time) (left int, ok bool) {
	if !now.Before(w.end) {
		if !w.end.IsZero() {
			w.used = 0
		}
		w.end = now.Truncate(w.per).Add(w.per)
	}
	if w.used >= w.limit {
		return 0, false
	}
	w.used++
	return w.limit - w.used, true
}

// startLoad starts the load and returns its page.
func startLoad(t *testing.T) *load {
	l := &load{
		page:   &debugpage.Page{Title: "report service"},
		core:   window{limit: 5000, used: 2900, per: time.Hour},
		search: window{limit: 30, used: 20, per: time.Minute},
		model:  window{limit: 500, used: 380, per: time.Minute},
		legacy: throttle.NewTokenBucket(throttle.Limit{Count: 20, Per: time.Second, Burst: 5}),
	}
	client := &heed.Transport{
		Base:  l,
		Trace: l.page.Trace(),
		Quota: &quota.Tracker{Mode: quota.Full}, // the page shows what is learned, too
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
		{client, "https://api.github.com/repos/a/b/issues?token=secret", 3, 400 * time.Millisecond, 0},
		{client, "https://api.github.com/search/code", 2, 5 * time.Second, 0},
		{client, "https://api.openai.com/v1/responses", 2, 300 * time.Millisecond, 0},
		// A hold begins when several requests are rejected that were sent after the first rejection had arrived
		// (QUOTA section 2 rule 3), so these workers start one after another.
		{client, "https://hooks.slack.com/services/secret", 40, 200 * time.Millisecond, 100 * time.Millisecond},
		{client, "https://legacy.example.com/feed", 6, 20 * time.Millisecond, 0},
		{client, "https://busy.example.com/items", 14, 10 * time.Millisecond, 0},
		{client, "https://healthy.example.com/items", 2, 50 * time.Millisecond, 0},
		{exports, "https://files.example.com/export", 12, 50 * time.Millisecond, 0},
	} {
		for i := range j.workers {
			running.Go(func() { j.work(ctx, time.Duration(i)*j.apart) })
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
	apart     time.Duration // between the starts of two workers
}

// work gets the URL until ctx ends, first after a delay.
func (j job) work(ctx context.Context, delay time.Duration) {
	client := heed.NewClient(j.transport)
	select {
	case <-ctx.Done():
	case <-time.After(delay):
	}
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
	busy := req.URL.Host == "busy.example.com"
	l.mu.Lock()
	if busy {
		l.inFlight++
	}
	status, h := l.respond(req.URL.Host, req.URL.Path, time.Now())
	l.mu.Unlock()
	if busy {
		defer func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.inFlight--
		}()
	}
	select {
	case <-req.Context().Done():
		return nil, req.Context().Err()
	case <-time.After(30 * time.Millisecond):
	}
	return &http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(strings.NewReader("")), Request: req,
	}, nil
}

// respond returns the response of a server. The caller holds l.mu.
func (l *load) respond(host, path string, now time.Time) (status int, h http.Header) {
	h = http.Header{}
	set := func(pairs ...string) {
		for i := 0; i < len(pairs); i += 2 {
			h.Set(pairs[i], pairs[i+1])
		}
	}
	ok := true
	switch host {
	case "api.github.com":
		w, resource := &l.core, "core"
		if strings.HasPrefix(path, "/search") {
			w, resource = &l.search, "search"
		}
		var left int
		left, ok = w.take(now)
		set("X-RateLimit-Limit", strconv.Itoa(w.limit), "X-RateLimit-Remaining", strconv.Itoa(left),
			"X-RateLimit-Reset", strconv.FormatInt(w.end.Unix(), 10), "X-RateLimit-Resource", resource)
	case "api.openai.com":
		var left int
		left, ok = l.model.take(now)
		reset := l.model.end.Sub(now).Round(time.Millisecond).String()
		set("x-ratelimit-limit-requests", "500", "x-ratelimit-remaining-requests", strconv.Itoa(left), "x-ratelimit-reset-requests", reset,
			"x-ratelimit-limit-tokens", "200000", "x-ratelimit-remaining-tokens", strconv.Itoa(left*300), "x-ratelimit-reset-tokens", reset)
	case "hooks.slack.com":
		if l.hooks++; l.hooks > 3 {
			set("Retry-After", "90")
			ok = false
		}
	case "legacy.example.com":
		d, err := l.legacy.Reserve(context.Background(), throttle.Claim{Now: now})
		ok = err == nil && d.OK
	case "busy.example.com":
		if l.inFlight > 8 {
			return http.StatusServiceUnavailable, h
		}
	}
	if !ok {
		return http.StatusTooManyRequests, h
	}
	return http.StatusOK, h
}
