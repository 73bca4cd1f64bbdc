// Package outagetest simulates the outage of a server for tests of what operators see.
package outagetest

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
)

// An Outage is a way in which a server is down.
type Outage struct {
	Mode   quota.Mode // of the Tracker of the client
	Header http.Header
}

// Outages returns outages by name.
func Outages() map[string]Outage {
	return map[string]Outage{
		"default":             {0, http.Header{}},
		"with estimates":      {quota.Full, http.Header{}},
		"with Retry-After: 1": {quota.Full, http.Header{"Retry-After": {"1"}}},
	}
}

// Transport returns a Transport whose server responds with status 503 after 5 ms.
func (o Outage) Transport(trace *heed.Trace) *heed.Transport {
	return &heed.Transport{Base: o, Quota: &quota.Tracker{Mode: o.Mode}, Trace: trace}
}

// RoundTrip implements http.RoundTripper. It is the server.
func (o Outage) RoundTrip(req *http.Request) (*http.Response, error) {
	time.Sleep(5 * time.Millisecond)
	return &http.Response{StatusCode: http.StatusServiceUnavailable, Header: o.Header, Body: http.NoBody, Request: req}, nil
}

// Run lets n callers call for 10 s, with a deadline of 1 s each and 100 ms between calls, and
// returns the number of calls. It must be called in a bubble of testing/synctest.
func Run(ctx context.Context, rt http.RoundTripper, n int) (calls int64) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var sent atomic.Int64
	var callers sync.WaitGroup
	for range n {
		callers.Go(func() {
			for ctx.Err() == nil {
				call(ctx, rt)
				sent.Add(1)
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	callers.Wait()
	return sent.Load()
}

func call(ctx context.Context, rt http.RoundTripper) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://api.test/", http.NoBody)
	if err != nil {
		panic(err)
	}
	if resp, err := rt.RoundTrip(req); err == nil {
		_ = resp.Body.Close()
	}
}
