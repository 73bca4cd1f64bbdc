package heed

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// TestTransport_waitsForTheTokensThatARequestCosts checks that a request with costs in
// tokens waits until that many are left, and that a request without costs does not wait
// for them.
func TestTransport_waitsForTheTokensThatARequestCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		headers := []string{"X-RateLimit-Limit-Tokens", "1000", "X-RateLimit-Remaining-Tokens", "500", "X-RateLimit-Reset-Tokens", "30s"}
		s := newScript(response{200, "", headers})
		tr := &Transport{Base: s, Limiter: throttle.NewTokenBucket(throttle.PerSecond(1000))}
		get := func(costs map[string]int64) *http.Response {
			resp, err := tr.RoundTrip(request(t, "GET", "").WithContext(WithOptions(t.Context(), RequestOptions{Costs: costs})))
			require.NoError(t, err)
			return resp
		}
		get(map[string]int64{"tokens": 600})
		get(map[string]int64{"tokens": 400})
		get(nil)
		get(map[string]int64{"points": 10_000})
		require.Zero(t, time.Since(s.start))
		resp := get(map[string]int64{"tokens": 600, "points": 1})
		require.Equal(t, 30*time.Second, time.Since(s.start))
		info, ok := InfoFrom(resp)
		require.True(t, ok)
		require.Equal(t, "api.test: quota of tokens", info.Limit)
	})
}
