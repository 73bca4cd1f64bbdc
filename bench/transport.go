package bench

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/failsafe-go/failsafe-go/ratelimiter"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
)

// transportPairs compares requests through a Transport with the same requests through each
// peer that retries, and through no client. The response is created in memory, with a body
// that is read, so only the clients are measured.
func transportPairs() (pairs []Pair) {
	many := throttle.Limit{Count: 1e9, Per: time.Second}
	for _, w := range []struct {
		work   string
		header http.Header
		limit  throttle.Limiter
	}{
		{"request", http.Header{}, nil},
		{"request, with a Limiter", http.Header{}, throttle.NewTokenBucket(many)},
		{"request, with a limit on concurrency", http.Header{}, throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1 << 20})},
		{"request, with GitHub's headers", gitHub(), nil},
	} {
		base := cannedTransport{w.header}
		ours := &heed.Transport{Base: base, Limiter: w.limit}
		for _, peer := range peersOf(base, w.limit != nil) {
			pairs = append(pairs, Pair{Work: w.work, Call: "heed.Transport", Peer: peer.name, Granted: true,
				Heed: sending(ours), Theirs: sending(peer.rt)})
		}
	}
	return pairs
}

type peer struct {
	name string
	rt   http.RoundTripper
}

// peersOf returns the peers over base, with their defaults. Only failsafe has its own
// limiter.
func peersOf(base http.RoundTripper, limited bool) []peer {
	retries := retryablehttp.NewClient()
	retries.Logger = nil
	retries.HTTPClient = &http.Client{Transport: base}
	policy := failsafehttp.NewRetryPolicyBuilder().Build()
	safe := peer{"failsafehttp, retry policy", failsafehttp.NewRoundTripper(base, policy)}
	if limited {
		bucket := ratelimiter.NewBursty[*http.Response](1e9, time.Second)
		safe = peer{"failsafehttp, retry policy, rate limiter", failsafehttp.NewRoundTripper(base, policy, bucket)}
	}
	return []peer{
		{"no client", base},
		safe,
		{"go-retryablehttp", &retryablehttp.RoundTripper{Client: retries}},
		{"rehttp", rehttp.NewTransport(base,
			rehttp.RetryAll(rehttp.RetryMaxRetries(4), rehttp.RetryStatuses(429, 503)), rehttp.ExpJitterDelay(time.Second, 30*time.Second))},
	}
}

// sending sends GET requests through rt and reads the responses.
func sending(rt http.RoundTripper) Side {
	warmUp := sync.OnceFunc(func() { sendAll(rt, 2000) }) // ends the slow start and fills pools
	return func(n int) int {
		warmUp()
		return sendAll(rt, n)
	}
}

func sendAll(rt http.RoundTripper, n int) (granted int) {
	req, err := http.NewRequest(http.MethodGet, "http://api.test/items", nil)
	if err != nil {
		return 0
	}
	for range n {
		resp, err := rt.RoundTrip(req)
		if err != nil {
			return granted
		}
		if _, err = io.Copy(io.Discard, resp.Body); err == nil && resp.StatusCode == http.StatusOK {
			granted++
		}
		resp.Body.Close()
	}
	return granted
}

// A cannedTransport responds with a fixed header and a few bytes.
type cannedTransport struct{ header http.Header }

func (s cannedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: s.header, Body: io.NopCloser(strings.NewReader("hello")), Request: req}, nil
}

// gitHub returns the rate-limit headers of api.github.com.
func gitHub() http.Header {
	now := time.Now()
	return http.Header{
		"Content-Type":          {"application/json; charset=utf-8"},
		"Date":                  {now.UTC().Format(http.TimeFormat)},
		"X-Github-Media-Type":   {"github.v3; format=json"},
		"X-Ratelimit-Limit":     {"1000000000"},
		"X-Ratelimit-Remaining": {"999999999"},
		"X-Ratelimit-Reset":     {strconv.FormatInt(now.Add(time.Hour).Unix(), 10)},
		"X-Ratelimit-Resource":  {"core"},
		"X-Ratelimit-Used":      {"1"},
	}
}
