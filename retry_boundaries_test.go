package heed

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/quota"
)

// TestTransport_waitsForAtMostMaxWait checks the boundary: a stated wait of MaxWait is waited
// for, a longer one is not.
func TestTransport_waitsForAtMostMaxWait(t *testing.T) {
	for name, tt := range map[string]struct {
		retryAfter string
		maxWait    time.Duration
		status     int // of the response that the caller gets
	}{
		"shorter": {"9", 10 * time.Second, 200},
		"equal":   {"10", 10 * time.Second, 200},
		"longer":  {"11", 10 * time.Second, 429},
	} {
		for _, tracks := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				s := newScript(response{429, "", []string{"Retry-After", tt.retryAfter}}, 200)
				tr := &Transport{Base: s, Retry: &RetryPolicy{MaxWait: tt.maxWait}}
				if !tracks {
					tr.Quota = &quota.Tracker{Mode: quota.Disabled}
				}
				resp, err := get(t, tr)
				require.NoError(t, err)
				require.Equal(t, tt.status, resp.StatusCode, "%s, tracked: %v", name, tracks)
			})
		}
	}
}

// TestRetryPolicy_shouldRetryIsAsked checks for which responses ShouldRetry is called, and that
// it can have a success retried.
func TestRetryPolicy_shouldRetryIsAsked(t *testing.T) {
	for status, retried := range map[int]bool{200: true, 201: true, 304: false, 399: true, 400: false, 404: false, 500: true} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(status, 204)
			asked := 0
			_, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{
				Backoff: backoff.Constant(time.Second),
				ShouldRetry: func(_ *http.Request, r *http.Response, err error, _ bool) (bool, error) {
					asked++
					require.NoError(t, err)
					return r.StatusCode == status && retried, nil
				},
			}})
			require.NoError(t, err)
			want := 1
			if retried {
				want = 2
			}
			require.Equal(t, want, s.sent(), status)
			require.Equal(t, want, asked, status)
		})
	}
	for status, sent := range map[int]int{200: 1, 304: 1, 399: 1, 404: 1, 500: 2, 503: 2} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(status, 204)
			_, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{Backoff: backoff.Constant(time.Second)}})
			require.NoError(t, err)
			require.Equal(t, sent, s.sent(), status)
		})
	}
}

// TestCancelRegistry_keepsTheOthers checks that the end of one canceled request does not
// forget another one.
func TestCancelRegistry_keepsTheOthers(t *testing.T) {
	var r cancelRegistry
	a, b := request(t, "GET", ""), request(t, "GET", "")
	require.True(t, r.cancel(a) == a && r.cancel(b) == b)
	r.end(a)
	require.False(t, r.isCanceled(a))
	require.True(t, r.isCanceled(b))
	r.end(b)
	require.False(t, r.isCanceled(b))
	require.False(t, r.hasCanceled.Load())
}
