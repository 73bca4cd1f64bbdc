package heed

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
)

// An obedienceServer rejects a share of the requests, and all of them while it has a stop. It records the requests
// that are sent again before the time that their own rejection stated.
type obedienceServer struct {
	mu       sync.Mutex // guards the fields below
	rand     *rand.Rand
	share    float64
	stop     func(at time.Duration) bool
	start    time.Time
	notUntil map[string]time.Time // by X-Call
	repeated int
	early    []string
}

// RoundTrip implements http.RoundTripper.
func (s *obedienceServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	now, call := time.Now(), r.Header.Get("X-Call")
	if t, ok := s.notUntil[call]; ok {
		s.repeated++
		if now.Before(t) {
			s.early = append(s.early, fmt.Sprintf("call %s at %v, %v early", call, now.Sub(s.start), t.Sub(now)))
		}
	}
	rejected := s.rand.Float64() < s.share || s.stop(now.Sub(s.start))
	took, wait, kind := time.Duration(s.rand.IntN(50))*time.Millisecond, time.Duration(1+s.rand.IntN(4000))*time.Millisecond, s.rand.IntN(4)
	s.mu.Unlock()
	time.Sleep(took)
	if !rejected {
		return newResponse(200, ""), nil
	}
	resp := newResponse(429, "")
	switch kind {
	case 0:
		wait = wait.Truncate(time.Second) + time.Second
		resp.Header.Set("Retry-After", strconv.Itoa(int(wait/time.Second)))
	case 1:
		resp.Header.Set("Retry-After-Ms", strconv.FormatInt(wait.Milliseconds(), 10))
	case 2:
		wait = wait.Truncate(time.Second) + time.Second
		resp = newResponse(503, "", "Retry-After", strconv.Itoa(int(wait/time.Second)))
	default:
		wait = wait.Truncate(time.Second) + time.Second
		resp = newResponse(429, "", "X-RateLimit-Limit", "100", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", strconv.Itoa(int(wait/time.Second)))
	}
	s.mu.Lock()
	s.notUntil[call] = time.Now().Add(wait)
	s.mu.Unlock()
	return resp, nil
}

// TestTransport_obeysItsOwnRejection checks invariant I1: no request is sent again before the time that its own
// rejection stated, to the millisecond, whatever else it waits for: a limit of the program, a hold, the quota of
// the server, a learned rate, or none of them because it is a test.
func TestTransport_obeysItsOwnRejection(t *testing.T) {
	never := func(time.Duration) bool { return false }
	stops := func(at time.Duration) bool { return at%(20*time.Second) > 15*time.Second }
	for name, tt := range map[string]struct {
		share float64
		stop  func(time.Duration) bool
		set   func(*Transport)
	}{
		"alone":      {0.05, never, func(*Transport) {}},
		"often":      {0.4, never, func(*Transport) {}},
		"holds":      {0.01, stops, func(*Transport) {}},
		"never test": {0.05, stops, func(tr *Transport) { tr.Quota = &quota.Tracker{NeverTest: true} }},
		"disabled":   {0.05, stops, func(tr *Transport) { tr.Quota = &quota.Tracker{Mode: quota.Disabled} }},
		"own rate":   {0.05, stops, func(tr *Transport) { tr.Limiter = throttle.NewTokenBucket(throttle.PerSecond(20)) }},
		"own number": {0.05, stops, func(tr *Transport) {
			tr.Limiter = throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 3})
		}},
		"no budget":       {0.05, stops, func(tr *Transport) { tr.Retry = &RetryPolicy{Budget: &backoff.Budget{Ratio: 0.01, MinPerSecond: 0.1}} }},
		"no delay":        {0.2, stops, func(tr *Transport) { tr.Retry = &RetryPolicy{Backoff: backoff.Constant(0)} }},
		"short max. wait": {0.2, stops, func(tr *Transport) { tr.Retry = &RetryPolicy{MaxServerWait: 2 * time.Second} }},
	} {
		t.Run(name, func(t *testing.T) {
			seeds := uint64(5)
			if testing.Short() {
				seeds = 1
			}
			for seed := range seeds {
				synctest.Test(t, func(t *testing.T) {
					s := &obedienceServer{rand: rand.New(rand.NewPCG(seed, 1)), share: tt.share, stop: tt.stop, start: time.Now(), notUntil: map[string]time.Time{}}
					tr := &Transport{Base: s}
					tt.set(tr)
					var wg sync.WaitGroup
					for worker := range 20 {
						wg.Go(func() {
							for n := range 50 {
								req, err := http.NewRequestWithContext(t.Context(), "GET", "http://api.test/items", http.NoBody)
								if !assert.NoError(t, err) {
									return
								}
								req.Header.Set("X-Call", fmt.Sprint(worker, ".", n))
								if resp, err := tr.RoundTrip(req); err == nil {
									resp.Body.Close()
								}
								time.Sleep(100 * time.Millisecond)
							}
						})
					}
					wg.Wait()
					require.Empty(t, s.early, "seed %d", seed)
					require.Positive(t, s.repeated, "seed %d", seed)
				})
			}
		})
	}
}
