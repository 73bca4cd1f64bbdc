package heed

import (
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTransport_testsAHoldOfAnHour checks that a rejection with a very distant end is
// returned immediately and unchanged. The end may be a mistake of the server that would
// hold the host for long, so it is tested: by one request at intervals that grow by half,
// because a server may extend its ban with each request. All other requests fail without being
// sent.
func TestTransport_testsAHoldOfAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hour = time.Hour
		start := time.Now()
		s := newScript(func(*http.Request) (*http.Response, error) {
			left := time.Until(start.Add(hour))
			if left <= 0 {
				return newResponse(200, ""), nil
			}
			return newResponse(429, "come back in an hour", "Retry-After", strconv.Itoa(int(left/time.Second))), nil
		})
		tr := &Transport{Base: baseFunc(func(r *http.Request) (*http.Response, error) {
			defer time.Sleep(100 * time.Millisecond)
			return s.RoundTrip(r)
		})}
		resp, err := get(t, tr)
		require.NoError(t, err)
		require.Equal(t, "come back in an hour", text(t, resp))
		for time.Since(start) < hour {
			sent := s.sent()
			_, err := get(t, tr)
			if s.sent() == sent {
				require.ErrorIs(t, err, ErrMaxWait)
			}
			time.Sleep(100 * time.Millisecond)
		}
		require.LessOrEqual(t, s.sent(), 30, "the first five, and tests after 1, 1.5, ... s")
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
			require.LessOrEqual(t, gap, time.Second+time.Second/2)
		}
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
