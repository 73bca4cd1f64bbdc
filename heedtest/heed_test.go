package heedtest_test

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// calls makes 200 of them from 40 goroutines and returns how many failed.
func calls(s *heedtest.Server) int64 {
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

// Where the plain client fails, heed's finishes, and never comes before it was
// told to.
func TestServer_findsNoFaultWithHeed(t *testing.T) {
	bucket := func() throttle.Limiter {
		return throttle.NewTokenBucket(throttle.Limit{Count: 10, Per: time.Second, Burst: 20}, nil)
	}
	tally := func() throttle.Limiter { return heedtest.NewTally(30, 4*time.Second) }
	for name, tt := range map[string]struct {
		limiter func() throttle.Limiter
		dialect quota.Dialect
		refused int // at most
	}{
		"bucket, X-RateLimit":     {bucket, quota.XRateLimit, 0},
		"bucket, draft 3":         {bucket, quota.Draft03, 0},
		"bucket, draft 10":        {bucket, quota.Draft10, 0},
		"bucket, all of them":     {bucket, quota.XRateLimit | quota.Draft03 | quota.Draft10 | quota.XRetryAfter, 0},
		"bucket, Retry-After":     {bucket, quota.XRetryAfter, 20},
		"tally, X-RateLimit":      {tally, quota.XRateLimit, 10},
		"tally, only Retry-After": {tally, quota.XRetryAfter, 30},
	} {
		for _, http2 := range []bool{false, true} {
			s := &heedtest.Server{HTTP2: http2}
			inMemory(t, s, func(t *testing.T) {
				s.Limit = &throttlehttp.Middleware{Limiter: tt.limiter(), Dialect: tt.dialect}
				require.Zero(t, calls(s), name)
				require.Empty(t, s.Early(), name)
				require.LessOrEqual(t, len(s.Arrivals()), 200+tt.refused, name)
			})
		}
	}
}

func TestServer_heedGetsOverFaults(t *testing.T) {
	faults := []heedtest.Answer{
		{Fault: heedtest.Drop},
		{Status: 503, Header: http.Header{"Retry-After": {"2"}}},
		{Status: 429},
		{Delay: 5 * time.Second},
	}
	for _, http2 := range []bool{true, false} {
		if !http2 { // a reset of HTTP/2 breaks bodies that callers are reading already
			faults = append(faults, heedtest.Answer{Fault: heedtest.Reset})
		}
		s := &heedtest.Server{HTTP2: http2, Answer: func(a heedtest.Arrival) heedtest.Answer {
			if a.N%20 == 0 {
				return faults[a.N/20%len(faults)]
			}
			return heedtest.Answer{}
		}}
		inMemory(t, s, func(t *testing.T) {
			require.Zero(t, calls(s))
			require.Empty(t, s.Early())
		})
	}
}
