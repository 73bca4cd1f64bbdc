package main

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/throttle"
)

// An api is a server in memory with a round-trip time of rtt, which states the state of its
// quota.
type api struct {
	plan
	limit          throttle.Limiter
	sent           atomic.Int64
	rejected       atomic.Int64
	firstRejection sync.Once
	rejectedAt     chan time.Time // the time of the first 429
}

func newAPI(p plan) (*api, error) {
	a := &api{plan: p, rejectedAt: make(chan time.Time, 1)}
	n := int64(p.rate)
	switch p.kind {
	case "bucket":
		a.limit = throttle.NewTokenBucket(throttle.Limit{Count: n, Per: time.Second, Burst: n})
	case "1s":
		a.limit = throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: n, Per: time.Second})
	case "10s":
		a.limit = throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 10 * n, Per: 10 * time.Second})
	default:
		if p.url == "" {
			return nil, fmt.Errorf("fleet: kind %q: take bucket, 1s or 10s", p.kind)
		}
	}
	return a, nil
}

// RoundTrip implements http.RoundTripper.
func (a *api) RoundTrip(req *http.Request) (resp *http.Response, err error) {
	a.sent.Add(1)
	if a.url != "" {
		if resp, err = http.DefaultTransport.RoundTrip(req); err != nil {
			return nil, err
		}
	} else {
		time.Sleep(a.rtt / 2)
		resp = a.respond(req)
		time.Sleep(a.rtt - a.rtt/2)
	}
	if resp.StatusCode == http.StatusTooManyRequests {
		a.rejected.Add(1)
		a.firstRejection.Do(func() { a.rejectedAt <- time.Now() })
	}
	return resp, nil
}

func (a *api) respond(req *http.Request) *http.Response {
	d, err := a.limit.Reserve(req.Context(), throttle.Claim{})
	if err != nil {
		panic(err) // limiters in memory do not fail
	}
	h := http.Header{}
	if !a.noHeaders {
		h.Set("X-RateLimit-Limit", strconv.FormatInt(d.Limit, 10))
		h.Set("X-RateLimit-Remaining", strconv.FormatInt(d.Remaining, 10))
		h.Set("X-RateLimit-Reset", seconds(d.ResetAfter))
	}
	status := http.StatusOK
	if !d.OK {
		status = http.StatusTooManyRequests
		h.Set("Retry-After", seconds(d.Wait))
	}
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: h, Body: io.NopCloser(strings.NewReader("")), Request: req,
	}
}

func seconds(d time.Duration) string { return strconv.Itoa(int(math.Ceil(d.Seconds()))) }

// ideal returns the time that n calls take if the limit is known.
func (a *api) ideal(n int) float64 {
	all, per := float64(n), float64(a.rate)
	switch a.kind {
	case "bucket":
		return max(all-per, 0) / per
	case "1s":
		return math.Ceil(all/per) - 1
	case "10s":
		return 10 * (math.Ceil(all/per/10) - 1)
	}
	return 0
}
