package heed

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTransport_returnsErrorsThatOnlyMentionLimits checks that an error that mentions
// limits but has another cause is returned unchanged: a POST is sent once.
func TestTransport_returnsErrorsThatOnlyMentionLimits(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
	}{
		{400, `{"error":{"code":"QUOTA_EXCEEDED","message":"storage full"}}`},
		{402, `{"error":"quota_exceeded"}`},
		{413, `{"code":"quotaExceeded"}`},
		{422, `{"errors":[{"field":"name","code":"rate_limit"}]}`},
		{403, `{"message":"token lacks scope rate_limit:read"}`},
		{403, `{"error":"forbidden","message":"You may not change throttling settings"}`},
		{500, `{"message":"panic: throttle body sensor"}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(response{tt.status, tt.body, []string{"Content-Type", isJSON}}, 200)
			resp, body := exchange(t, &Transport{Base: s}, "POST", "https://api.test/orders", RequestOptions{})
			require.Equal(t, tt.status, resp.StatusCode, tt.body)
			require.Equal(t, tt.body, body)
			require.Equal(t, 1, s.sent(), tt.body)
		})
	}
}

// TestTransport_returnsPermanentRejections checks that a rejection that waiting does not
// cure is returned immediately, regardless of its status, and that the next request is
// not delayed.
func TestTransport_returnsPermanentRejections(t *testing.T) {
	for _, tt := range []struct {
		status int
		body   string
	}{
		{429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`},
		{429, `{"error":{"code":"billing_hard_limit_reached"}}`},
		{403, `{"error":{"code":"account_suspended"}}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(response{tt.status, tt.body, []string{"Content-Type", isJSON}}, 200)
			tr, start := &Transport{Base: s}, time.Now()
			resp, body := exchange(t, tr, "GET", "https://api.test/completions", RequestOptions{})
			require.Equal(t, tt.status, resp.StatusCode, tt.body)
			require.Equal(t, tt.body, body)
			require.Equal(t, 1, s.sent(), tt.body)
			resp, _ = exchange(t, tr, "GET", "https://api.test/completions", RequestOptions{})
			require.Equal(t, 200, resp.StatusCode)
			require.Less(t, time.Since(start), time.Millisecond)
		})
	}
}

// TestTransport_retriesAnOverloadForAnyMethod checks that a 529 is retried for any method
// after the delay that the server states. A 529 means that the server is overloaded and
// has not processed the request.
func TestTransport_retriesAnOverloadForAnyMethod(t *testing.T) {
	for _, headers := range [][]string{{"Retry-After", "3"}, {"Retry-After-Ms", "3000"}} {
		synctest.Test(t, func(t *testing.T) {
			s := newScript(response{529, `{"type":"error","error":{"type":"overloaded_error"}}`, append(headers, "Content-Type", isJSON)}, 200)
			resp, _ := exchange(t, &Transport{Base: s}, "POST", "https://api.test/messages", RequestOptions{})
			require.Equal(t, 200, resp.StatusCode)
			require.Equal(t, 2, s.sent())
			require.GreaterOrEqual(t, s.gaps()[0], 3*time.Second)
			require.Less(t, s.gaps()[0], 4*time.Second)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := newScript(response{529, "", nil}, 200)
		req := request(t, "POST", "{}")
		resp, err := s.RoundTrip(req)
		require.NoError(t, err)
		require.True(t, Retryable(req, resp, nil))
	})
}
