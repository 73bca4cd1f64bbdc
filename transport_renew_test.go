package heed_test

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
)

// A namedServer has a quota of limit requests in 5 s for each path, and takes 10 ms for a
// response. Its responses state the name of the quota and what is left of it.
type namedServer struct {
	limit int

	mu       sync.Mutex // guards the fields below
	ends     map[string]time.Time
	used     map[string]int
	rejected int
}

func (s *namedServer) RoundTrip(req *http.Request) (*http.Response, error) {
	resp := s.answer(req)
	time.Sleep(10 * time.Millisecond)
	return resp, nil
}

func (s *namedServer) answer(req *http.Request) *http.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, path, status := time.Now(), req.URL.Path, http.StatusOK
	if !now.Before(s.ends[path]) {
		s.ends[path], s.used[path] = now.Add(5*time.Second), 0
	}
	if s.used[path] < s.limit {
		s.used[path]++
	} else {
		s.rejected++
		status = http.StatusTooManyRequests
	}
	header := http.Header{}
	header.Set("X-RateLimit-Bucket", path)
	header.Set("X-RateLimit-Limit", strconv.Itoa(s.limit))
	header.Set("X-RateLimit-Remaining", strconv.Itoa(s.limit-s.used[path]))
	header.Set("X-RateLimit-Reset-After", strconv.FormatFloat(s.ends[path].Sub(now).Seconds(), 'f', 3, 64))
	return &http.Response{StatusCode: status, Header: header, Body: http.NoBody, Request: req}
}

// TestTransport_waitingRequestsGetTheQuotaOfTheirRoute checks that requests which wait for an unknown
// host continue with the quota of their route as soon as that is known: they
// do not wait for the quota of another route, and are not sent beyond their own. Only those that
// were sent before the first response of their route may be too many: half of all, because nothing delays the requests to a
// new host (rule 8).
func TestTransport_waitingRequestsGetTheQuotaOfTheirRoute(t *testing.T) {
	for _, tt := range []struct{ routes, limit int }{{40, 5}, {40, 10}, {150, 1}} {
		t.Run(fmt.Sprintf("%d routes, %d each", tt.routes, tt.limit), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &namedServer{limit: tt.limit, ends: make(map[string]time.Time), used: make(map[string]int)}
				client := heed.NewClient(&heed.Transport{Base: s})
				start := time.Now()
				var wg sync.WaitGroup
				calls := 2 * tt.routes * tt.limit
				for i := range calls {
					wg.Go(func() {
						req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://api.test/route%c%c", 'a'+i%tt.routes/26, 'a'+i%tt.routes%26), nil)
						if err != nil {
							panic(err)
						}
						if resp, err := client.Do(req); err != nil {
							t.Errorf("call %d: %v", i, err)
						} else {
							resp.Body.Close()
						}
					})
				}
				wg.Wait()
				require.LessOrEqual(t, s.rejected, calls/2+calls/10)
				require.Less(t, time.Since(start), 11*time.Second, "one window later than ideal, if a response in flight was counted twice")
			})
		})
	}
}
