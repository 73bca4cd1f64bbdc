package heed

import (
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// TestTransport_probesAHoldOfAMonth checks that a rejection with a very distant end is
// returned immediately and unchanged. The end may be a mistake of the server that would
// hold the host for a month, so it is probed: one request is sent after 15 minutes, and
// the next ones after 3, 9, ... times as long. All other requests fail without being
// sent.
func TestTransport_probesAHoldOfAMonth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const month = 30 * 24 * time.Hour
		start := time.Now()
		s := newScript(func(*http.Request) (*http.Response, error) {
			left := time.Until(start.Add(month))
			if left <= 0 {
				return newResponse(200, ""), nil
			}
			return newResponse(429, "come back in a month", "Retry-After", strconv.Itoa(int(left/time.Second))), nil
		})
		tr := &Transport{Base: baseFunc(func(r *http.Request) (*http.Response, error) {
			defer time.Sleep(100 * time.Millisecond)
			return s.RoundTrip(r)
		})}
		resp, err := get(t, tr)
		require.NoError(t, err)
		require.Equal(t, "come back in a month", text(t, resp))
		for time.Since(start) < month {
			sent := s.sent()
			_, err := get(t, tr)
			if s.sent() == sent {
				require.ErrorIs(t, err, ErrMaxWait)
			}
			time.Sleep(time.Minute)
		}
		require.LessOrEqual(t, s.sent(), 9, "the first, and eight tests")
		time.Sleep(time.Hour)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				resp, err := get(t, tr)
				if err != nil || resp.StatusCode != 200 {
					t.Error(err, resp)
				}
			})
		}
		wg.Wait()
	})
}

// TestTransport_learnsThatRetryAfterIsTooShort checks that a server that repeatedly
// states one second and means eight gets retries at growing intervals.
func TestTransport_learnsThatRetryAfterIsTooShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		s := newScript(func(*http.Request) (*http.Response, error) {
			if time.Since(start) < 8*time.Second {
				return newResponse(429, "", "Retry-After", "1"), nil
			}
			return newResponse(200, ""), nil
		})
		resp, err := get(t, &Transport{Base: s})
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.LessOrEqual(t, s.sent(), 9, "the first, and about one each second")
		gaps := s.gaps()
		for _, gap := range gaps {
			require.GreaterOrEqual(t, gap, time.Second, "never earlier than told")
			require.Less(t, gap, 2*time.Second)
		}
	})
}

// TestTransport_slowsDownWhenConnectionsAreClosed checks that a server that closes
// connections instead of responding is slowed down for like one that rejects requests:
// all calls succeed, with few wasted attempts.
func TestTransport_slowsDownWhenConnectionsAreClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		allowed := throttle.NewTokenBucket(throttle.Limit{Count: 20, Per: time.Second, Burst: 20})
		var refused atomic.Int64
		tr := &Transport{Base: baseFunc(func(r *http.Request) (*http.Response, error) {
			time.Sleep(20 * time.Millisecond)
			if d, _ := allowed.Reserve(r.Context(), throttle.Claim{}); !d.OK {
				refused.Add(1)
				return nil, io.ErrUnexpectedEOF
			}
			return newResponse(200, ""), nil
		})}
		start := time.Now()
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				for range 10 {
					if _, err := get(t, tr); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		t.Logf("%d refused, %v", refused.Load(), time.Since(start))
		require.LessOrEqual(t, refused.Load(), int64(80), "it was 371")
		require.Less(t, time.Since(start), 20*time.Second, "ideal: 14 s")
	})
}

// TestTransport_ignoresASingleClosedConnection checks that a single closed connection
// does not count as a rejection and delays no other request.
func TestTransport_ignoresASingleClosedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(200, 200, 200, io.ErrUnexpectedEOF, 200)
		tr := &Transport{Base: s, Retry: &RetryPolicy{MaxAttempts: -1}}
		start := time.Now()
		failed := 0
		for range 10 {
			if _, err := get(t, tr); err != nil {
				failed++
			}
		}
		require.Equal(t, 1, failed)
		require.Zero(t, time.Since(start))
	})
}
