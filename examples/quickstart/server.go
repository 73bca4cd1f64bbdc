package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
)

var listen = net.Listen // tests replace it

// server returns the URL to fetch from, and the minimum time of the job in seconds; nil
// means that it is unknown.
func (j job) server() (url string, ideal *float64, stop func(), err error) {
	if j.url != "" {
		return j.url, nil, func() {}, nil
	}
	if j.burst < 1 {
		return "", nil, nil, fmt.Errorf("-burst %d: it must be positive", j.burst)
	}
	limit := throttle.Limit{Count: j.rate, Per: time.Second, Burst: j.burst}
	if err := limit.Validate(); err != nil {
		return "", nil, nil, fmt.Errorf("-rate %d -burst %d: %w", j.rate, j.burst, err)
	}
	l, err := listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, nil, err
	}
	m := &throttlehttp.Middleware{Limiter: throttle.NewTokenBucket(limit)}
	s := &http.Server{Handler: m.Handler(http.HandlerFunc(page))}
	go func() { _ = s.Serve(l) }()
	best := max(float64(j.n)-float64(j.burst), 0) / float64(j.rate)
	return "http://" + l.Addr().String(), &best, func() { s.Close() }, nil
}

// servePage serves a page on this machine and returns its URL.
func servePage(p http.Handler) (url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	go func() { _ = http.Serve(l, p) }()
	return "http://" + l.Addr().String() + "/", nil
}

func page(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"items":["one","two"]}`+"\n")
}

// A countingTransport counts the requests that are sent, including retries.
type countingTransport struct{ sent, throttled atomic.Int64 }

func (w *countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w.sent.Add(1)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err == nil && (resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable) {
		w.throttled.Add(1)
	}
	return resp, err
}
