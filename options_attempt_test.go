package heed

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestAttemptFrom_countsEarlierAttempts checks what a RoundTripper below the Transport reads,
// with and without a context of the attempt's own.
func TestAttemptFrom_countsEarlierAttempts(t *testing.T) {
	require.Zero(t, AttemptFrom(context.Background()))
	for _, timeout := range []time.Duration{0, time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			var counts []int
			s := newScript(500, errBroken, 200)
			tr := &Transport{Retry: &RetryPolicy{AttemptTimeout: timeout}, Base: baseFunc(func(r *http.Request) (*http.Response, error) {
				counts = append(counts, AttemptFrom(r.Context()))
				return s.RoundTrip(r)
			})}
			resp, err := get(t, tr)
			require.NoError(t, err)
			require.Equal(t, []int{0, 1, 2}, counts)
			require.Zero(t, AttemptFrom(resp.Request.Context()), "the request is the caller's")
		})
	}
}
