// Package clients creates the http.Clients that bench compares: ours, and those of other
// libraries, each configured as in its documentation.
package clients

import (
	"fmt"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/PuerkitoBio/rehttp"
	"github.com/failsafe-go/failsafe-go/failsafehttp"
	"github.com/hashicorp/go-retryablehttp"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/throttle"
)

// constructors are the constructors of the clients by name. limit is nil if none was
// stated.
var constructors = map[string]func(base http.RoundTripper, limit throttle.Limiter) *http.Client{
	"plain": func(base http.RoundTripper, _ throttle.Limiter) *http.Client {
		return &http.Client{Transport: base}
	},
	"heed": func(base http.RoundTripper, limit throttle.Limiter) *http.Client {
		return heed.NewClient(&heed.Transport{Base: base, Limiter: limit})
	},
	"retryablehttp": func(base http.RoundTripper, _ throttle.Limiter) *http.Client {
		c := retryablehttp.NewClient()
		c.Logger = nil
		c.HTTPClient = &http.Client{Transport: base}
		return c.StandardClient()
	},
	"failsafe": func(base http.RoundTripper, _ throttle.Limiter) *http.Client {
		return &http.Client{Transport: failsafehttp.NewRoundTripper(base, failsafehttp.NewRetryPolicyBuilder().Build())}
	},
	"failsafe-patient": func(base http.RoundTripper, _ throttle.Limiter) *http.Client {
		p := failsafehttp.NewRetryPolicyBuilder().WithBackoff(500*time.Millisecond, 8*time.Second).WithJitterFactor(.25).WithMaxRetries(-1).Build()
		return &http.Client{Transport: failsafehttp.NewRoundTripper(base, p)}
	},
	"rehttp": func(base http.RoundTripper, _ throttle.Limiter) *http.Client {
		return &http.Client{Transport: rehttp.NewTransport(base,
			rehttp.RetryAll(rehttp.RetryMaxRetries(4), rehttp.RetryStatuses(429, 503)),
			rehttp.ExpJitterDelay(time.Second, 30*time.Second))}
	},
}

// New returns the client with the given name over base. Only heed supports a limit. A nil
// limit means none.
func New(name string, base http.RoundTripper, limit throttle.Limiter) (*http.Client, error) {
	f := constructors[name]
	if f == nil {
		return nil, fmt.Errorf("no client %q: take one of %s", name, strings.Join(Names(), ", "))
	}
	if limit != nil && name != "heed" {
		return nil, fmt.Errorf("client %q does not support -limit", name)
	}
	return f(base, limit), nil
}

// Constructor returns the constructor of the client with the given name, which must exist, without
// a limit.
func Constructor(name string) func(base http.RoundTripper) *http.Client {
	return func(base http.RoundTripper) *http.Client { return constructors[name](base, nil) }
}

// Names returns the names of all clients.
func Names() []string {
	names := make([]string, 0, len(constructors))
	for name := range constructors {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// A RequestCounter counts the requests that a client writes, including those that net/http repeats
// after a connection was closed, and their outcomes.
type RequestCounter struct {
	Base http.RoundTripper

	Sent atomic.Int64 // requests written

	// Throttled counts responses that reject because of a limit: 429, 503, or 403 with
	// rate-limit headers.
	Throttled atomic.Int64

	Wasted atomic.Int64 // 429, 503 and 403, and requests whose connection was closed without a response
}

// NewRequestCounter returns a RequestCounter over new connections, as many as callers need.
func NewRequestCounter(callers int) *RequestCounter {
	return &RequestCounter{Base: &http.Transport{MaxIdleConnsPerHost: callers, MaxIdleConns: callers}}
}

// RoundTrip implements http.RoundTripper.
func (w *RequestCounter) RoundTrip(r *http.Request) (*http.Response, error) {
	var written atomic.Int64
	trace := &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
		if info.Err == nil {
			w.Sent.Add(1)
			written.Add(1)
		}
	}}
	resp, err := w.Base.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	unanswered := written.Load()
	if err == nil || r.Context().Err() != nil {
		unanswered-- // the last request got a response, or the caller has cancelled it
	}
	w.Wasted.Add(max(unanswered, 0))
	if err != nil {
		return resp, err
	}
	if throttled(resp) {
		w.Throttled.Add(1)
	}
	if throttled(resp) || resp.StatusCode == http.StatusForbidden {
		w.Wasted.Add(1)
	}
	return resp, err
}

// CloseIdleConnections closes the idle connections of Base.
func (w *RequestCounter) CloseIdleConnections() {
	if b, ok := w.Base.(interface{ CloseIdleConnections() }); ok {
		b.CloseIdleConnections()
	}
}

// throttled reports whether resp rejects because of a limit: 429, 503, or 403 with
// rate-limit headers.
func throttled(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return true
	case http.StatusForbidden:
		for name := range resp.Header {
			if n := strings.ToLower(name); strings.Contains(n, "ratelimit") || strings.Contains(n, "rate-limit") || n == "retry-after" {
				return true
			}
		}
	}
	return false
}
