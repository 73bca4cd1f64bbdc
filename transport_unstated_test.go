package heed_test

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/quota"
)

// A quickRejecter is a server that takes 40 ms for a request and 10 ms for a rejection.
type quickRejecter struct {
	mu       sync.Mutex // guards the fields below
	serve    limitedServer
	rejected int
}

func (s *quickRejecter) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	status, header := s.serve(time.Now())
	took := 40 * time.Millisecond
	if status != http.StatusOK {
		s.rejected++
		took = 10 * time.Millisecond
	}
	s.mu.Unlock()
	time.Sleep(took)
	if header == nil {
		header = http.Header{}
	}
	return &http.Response{StatusCode: status, Header: header, Body: http.NoBody, Request: req}, nil
}

// TestTransport_manyCallersMeetAnUnstatedLimit checks that 4,000 calls that begin together do not fail, and
// that not many more requests than these are rejected by a limit that the server does not state, if it is estimated: nothing
// delays the first request of each (rule 8). A 503 without a Retry-After is a failure, after which a request is sent at most
// four times in all. That the calls wait for their backoff for a moment does not end what limits them.
func TestTransport_manyCallersMeetAnUnstatedLimit(t *testing.T) {
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		if testing.Short() && status == http.StatusServiceUnavailable {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			s := &quickRejecter{serve: bucketServer(300, 300, status, false)}
			failed, elapsed := runJob(t, heed.NewClient(&heed.Transport{Base: s, Quota: &quota.Tracker{Mode: quota.Full}}), 4000, 4000)
			t.Logf("status %d: %d rejected, %d failed, %v", status, s.rejected, failed, elapsed)
			require.LessOrEqual(t, failed, map[int]int{429: 0, 503: 200}[status], "status %d", status)
			require.LessOrEqual(t, s.rejected, 5000, "status %d", status)
		})
	}
}
