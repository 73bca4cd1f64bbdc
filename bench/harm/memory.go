package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"

	"github.com/failsafe-go/failsafe-go/failsafehttp"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/bench/clients"
)

const uploadSize = 64 << 20

// uploadAllocates returns the number of bytes allocated for a successful upload of a body
// of 64 MiB with unknown length.
func uploadAllocates(name string) int64 {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer server.Close()
	c, err := clients.New(name, &http.Transport{}, nil)
	if err != nil {
		panic(err) // measure has checked the name
	}
	defer c.CloseIdleConnections()
	succeeds(c.Get(server.URL)) // one-time allocations are not counted
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	req, _ := http.NewRequest("PUT", server.URL, io.LimitReader(zeros{}, uploadSize))
	succeeds(c.Do(req))
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// nestedSends returns the number of requests that a call through three nested clients, with
// three attempts each and no pauses, sends to a server that is down. It skips clients whose
// pauses cannot be disabled.
func nestedSends(name string) int {
	var sent atomic.Int64
	var top http.RoundTripper = failingTransport{&sent}
	for range 3 {
		switch name {
		case "plain":
		case "heed":
			top = &heed.Transport{Base: top, Retry: &heed.RetryPolicy{MaxAttempts: 3, Backoff: backoff.Constant(0)}}
		case "failsafe":
			top = failsafehttp.NewRoundTripper(top, failsafehttp.NewRetryPolicyBuilder().Build())
		default:
			return 0
		}
	}
	succeeds((&http.Client{Transport: top}).Get("http://api.test"))
	return int(sent.Load())
}

type failingTransport struct{ sent *atomic.Int64 }

func (d failingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	d.sent.Add(1)
	return &http.Response{StatusCode: http.StatusBadGateway, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}
