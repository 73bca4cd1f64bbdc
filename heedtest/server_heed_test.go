package heedtest_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// sendCalls makes 200 of them from 40 goroutines and returns how many failed.
func sendCalls(s *heedtest.Server) int64 {
	client := heed.NewClient(&heed.Transport{Base: s.Transport()})
	var failed, next atomic.Int64
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			for next.Add(1) <= 200 {
				if status, _, err := fetch(client, "GET", s.URL, ""); err != nil || status != 200 {
					failed.Add(1)
				}
			}
		})
	}
	all.Wait()
	return failed.Load()
}

// limiters are all algorithms that a server may limit by, at 10 a second.
var limiters = map[string]func() throttle.Limiter{
	"token bucket": func() throttle.Limiter {
		return throttle.NewTokenBucket(throttle.Limit{Count: 10, Per: time.Second, Burst: 20}, nil)
	},
	"refill bucket": func() throttle.Limiter {
		return throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: throttle.Limit{Count: 20, Per: 2 * time.Second}}, nil)
	},
	"fixed window": func() throttle.Limiter {
		return throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 30, Per: 3 * time.Second}, nil)
	},
	"sliding log": func() throttle.Limiter {
		return throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.Limit{Count: 30, Per: 3 * time.Second}}, nil)
	},
	"sliding counter": func() throttle.Limiter {
		return throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 30, Per: 3 * time.Second}}, nil)
	},
	"sub-windows": func() throttle.Limiter {
		return throttle.NewSubWindows(throttle.SubWindowsConfig{Limit: throttle.Limit{Count: 30, Per: 3 * time.Second}, Parts: 3}, nil)
	},
	"unforgiving": func() throttle.Limiter { return countingRejected(30, 3*time.Second) },
}

// imprecise are the limits of which a header cannot say when units come back: each by
// itself, as long after it was taken. There some may be refused.
var imprecise = map[string]int{"sliding log": 10, "unforgiving": 10}

// Where the plain client fails, heed's finishes, and never comes before it was
// told to. Where the answers say how the limit stands, nothing is refused at all,
// or next to nothing.
func TestServer_heedObeysEveryLimit(t *testing.T) {
	for limit, limiter := range limiters {
		for dialect, maxRejected := range map[headers.Dialect]int{ // that are refused
			headers.XRateLimit:                   3, // all is sent in no time: the order is up to the scheduler
			headers.Draft03:                      3,
			headers.Draft10:                      3,
			headers.XRateLimit | headers.Draft10: 3,
			headers.XRetryAfter:                  40, // nothing is said but on refusals
		} {
			s := &heedtest.Server{HTTP2: dialect&headers.Draft10 != 0}
			inMemory(t, s, func(t *testing.T) {
				s.Limit = &throttlehttp.Middleware{Limiter: limiter(), Dialect: dialect}
				start := time.Now()
				failed := sendCalls(s)
				at, took := fmt.Sprint(limit, ", dialect ", dialect), time.Since(start)
				require.Zero(t, failed, at)
				require.Empty(t, s.EarlyRetries(), at)
				require.LessOrEqual(t, len(s.Requests()), 200+maxRejected+imprecise[limit], at)
				if limit != "sliding counter" { // whose reset tells little of when the next unit is back
					require.Less(t, took, 24*time.Second, at) // 18 at best, and 3 more after a refusal
				}
			})
		}
	}
}

// Nobody's clock matters: absolute times are read by the server's own.
func TestServer_heedToleratesSkewedClocks(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour // see heedtest.EpochReset
	for _, skew := range []time.Duration{century - 10*time.Minute, century, century + 10*time.Minute} {
		for name, edit := range map[string]func(http.Header){"epoch": heedtest.EpochReset, "date": heedtest.RetryDate} {
			s := &heedtest.Server{Skew: skew, EditHeader: edit}
			inMemory(t, s, func(t *testing.T) {
				s.Limit = &throttlehttp.Middleware{Limiter: limiters["fixed window"]()}
				start := time.Now()
				require.Zero(t, sendCalls(s), "%s %v", name, skew)
				require.Empty(t, s.EarlyRetries(), "%s %v", name, skew)
				require.Len(t, s.Requests(), 200, "%s %v", name, skew)
				require.Less(t, time.Since(start), 20*time.Second, "%s %v", name, skew)
			})
		}
	}
}

func TestServer_heedRecoversFromFaults(t *testing.T) {
	faults := []heedtest.Response{
		{Fault: heedtest.Drop},
		{Status: 503, Header: http.Header{"Retry-After": {"2"}}},
		{Status: 429},
		{Delay: 5 * time.Second},
	}
	for _, http2 := range []bool{true, false} {
		if !http2 { // a reset of HTTP/2 breaks bodies that callers are reading already
			faults = append(faults, heedtest.Response{Fault: heedtest.Reset})
		}
		s := &heedtest.Server{HTTP2: http2, Respond: func(a heedtest.Request) heedtest.Response {
			if a.N%20 == 0 {
				return faults[a.N/20%len(faults)]
			}
			return heedtest.Response{}
		}}
		inMemory(t, s, func(t *testing.T) {
			require.Zero(t, sendCalls(s))
			require.Empty(t, s.EarlyRetries())
		})
	}
}
