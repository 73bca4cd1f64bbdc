package heedtest_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// sendCalls sends 200 requests from 40 goroutines and returns the number of failures.
func sendCalls(s *heedtest.Server, mode quota.Mode) int64 {
	client := heed.NewClient(&heed.Transport{Base: s.Transport(), Quota: &quota.Tracker{Mode: mode}})
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

// limiters lists the algorithms by which a server may limit, each at 10 requests per second.
var limiters = map[string]func() throttle.Limiter{
	"token bucket": func() throttle.Limiter {
		return throttle.NewTokenBucket(throttle.Limit{Count: 10, Per: time.Second, Burst: 20})
	},
	"refill bucket": func() throttle.Limiter {
		return throttle.NewRefillBucket(throttle.RefillBucketConfig{Limit: throttle.Limit{Count: 20, Per: 2 * time.Second}})
	},
	"fixed window": func() throttle.Limiter {
		return throttle.NewFixedWindow(throttle.FixedWindowConfig{Count: 30, Per: 3 * time.Second})
	},
	"sliding log": func() throttle.Limiter {
		return throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.Limit{Count: 30, Per: 3 * time.Second}})
	},
	"sliding counter": func() throttle.Limiter {
		return throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 30, Per: 3 * time.Second}})
	},
	"sub-windows": func() throttle.Limiter {
		return throttle.NewSlidingCounter(throttle.SlidingCounterConfig{Limit: throttle.Limit{Count: 30, Per: 3 * time.Second}, Parts: 3})
	},
	"unforgiving": func() throttle.Limiter { return countingRejected(30, 3*time.Second) },
}

// imprecise lists the limits whose headers cannot describe when units are restored, because each
// unit is restored by itself, and the number of rejections that are allowed for them.
var imprecise = map[string]int{"sliding log": 10, "unforgiving": 10}

// maxTests is the maximum number of requests that test whether the server is right, or are sent before it has
// stated anything, in the tests below.
const maxTests = 400 // ten for each caller in flight: nothing delays the requests to a new host (rule 8)

// TestServer_heedObeysEveryLimit checks that requests through heed succeed where those of
// a plain client fail. If the responses report the state of the limits, only a few are rejected: those
// that test it.
func TestServer_heedObeysEveryLimit(t *testing.T) {
	for limit, limiter := range limiters {
		for dialect, maxRejected := range map[headers.Dialect]int{ // maximum number of rejected requests
			headers.XRateLimit:                   3, // all requests are sent at the same instant: their order depends on the scheduler
			headers.Draft03:                      3,
			headers.Draft10:                      3,
			headers.XRateLimit | headers.Draft10: 3,
			headers.XRetryAfter:                  40, // only rejections have headers
		} {
			if testing.Short() && (dialect == headers.Draft03 || dialect == headers.XRateLimit|headers.Draft10 ||
				dialect == headers.XRateLimit && limit != "fixed window" && imprecise[limit] == 0 ||
				dialect == headers.XRetryAfter && (limit == "refill bucket" || limit == "sub-windows")) {
				continue
			}
			s := &heedtest.Server{HTTP2: dialect&headers.Draft10 != 0}
			inMemory(t, s, func(t *testing.T) {
				s.Limit = &throttlehttp.Middleware{Limiter: limiter(), Dialect: dialect}
				start := time.Now()
				mode := quota.StatedOnly
				if dialect == headers.XRetryAfter { // the limit itself is not stated, but estimated
					mode = quota.Full
				}
				failed := sendCalls(s, mode)
				at, took := fmt.Sprint(limit, ", dialect ", dialect), time.Since(start)
				require.Zero(t, failed, at)
				require.LessOrEqual(t, len(s.EarlyRetries()), maxTests, at)
				require.LessOrEqual(t, len(s.Requests()), 200+maxRejected+maxTests+imprecise[limit], at)
				if limit != "sliding counter" { // its reset says little about when the next unit is restored
					require.Less(t, took, 36*time.Second, at) // at least 18 s, and 3 s more after each wave of rejections
				}
			})
		}
	}
}

// TestServer_heedToleratesSkewedClocks checks that a difference between the clocks of
// client and server has no effect: absolute times are interpreted by the clock of the
// server. The order of requests that are sent at the same instant depends on the scheduler,
// so the median of the times of five runs counts: in one of 50 a guess is rejected, whose call waits for the next window. In
// each run only tests and guesses are rejected.
func TestServer_heedToleratesSkewedClocks(t *testing.T) {
	const century = 100 * 365 * 24 * time.Hour // see heedtest.EpochReset
	for _, skew := range []time.Duration{century - 10*time.Minute, century, century + 10*time.Minute} {
		for name, edit := range map[string]func(http.Header){"epoch": heedtest.EpochReset, "date": heedtest.RetryDate} {
			const runs = 9 // the median of three was 20 s or more in one of 30
			if testing.Short() && skew == century {
				continue
			}
			var sent []int
			var took []time.Duration
			for range runs {
				s := &heedtest.Server{Skew: skew, EditHeader: edit}
				inMemory(t, s, func(t *testing.T) {
					s.Limit = &throttlehttp.Middleware{Limiter: limiters["fixed window"]()}
					start := time.Now()
					require.Zero(t, sendCalls(s, quota.StatedOnly), "%s %v", name, skew)
					require.LessOrEqual(t, len(s.EarlyRetries()), maxTests, "%s %v", name, skew)
					sent, took = append(sent, len(s.Requests())), append(took, time.Since(start))
				})
			}
			slices.Sort(sent)
			slices.Sort(took)
			require.Less(t, took[runs/2], 20*time.Second, "%s %v", name, skew)
			require.LessOrEqual(t, sent[runs-1], 200+maxTests, "%s %v", name, skew)
			require.Less(t, took[runs-1], 24*time.Second, "%s %v", name, skew) // 3 s more after a rejection
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
		if !http2 { // over HTTP/2, a reset breaks bodies that callers are already reading
			faults = append(faults, heedtest.Response{Fault: heedtest.Reset})
		}
		s := &heedtest.Server{HTTP2: http2, Respond: func(a heedtest.Request) heedtest.Response {
			if a.N%20 == 0 {
				return faults[a.N/20%len(faults)]
			}
			return heedtest.Response{}
		}}
		inMemory(t, s, func(t *testing.T) {
			require.Zero(t, sendCalls(s, quota.StatedOnly))
			require.LessOrEqual(t, len(s.EarlyRetries()), 80, "40 requests in flight, their confirmation, and tests")
		})
	}
}
