package heed

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A permissionServer responds with 403 to requests for the paths in forbidden, to so many of each,
// and with 200 to all others.
type permissionServer struct {
	forbidden map[string]int
	sent      []string // paths
}

// RoundTrip implements http.RoundTripper.
func (s *permissionServer) RoundTrip(r *http.Request) (*http.Response, error) {
	s.sent = append(s.sent, r.URL.Path)
	status := http.StatusOK
	if s.forbidden[r.URL.Path] > 0 {
		s.forbidden[r.URL.Path]--
		status = http.StatusForbidden
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// call sends a request through tr and returns its response.
func call(t *testing.T, tr *Transport, method, path string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://api.test"+path, http.NoBody)
	require.NoError(t, err)
	if len(header) > 0 {
		req.Header.Set(header[0], header[1])
	}
	resp, err := tr.RoundTrip(req)
	require.NoError(t, err)
	return resp
}

// TestTransport_sendsABare403Once checks that a 403 that states nothing is returned, also if requests like it have just
// succeeded, and delays no other request. RetryPolicy.ShouldRetry may permit a retry.
func TestTransport_sendsABare403Once(t *testing.T) {
	for name, tt := range map[string]struct {
		method string
		header []string
		hook   bool // ShouldRetry permits a retry
		status int
		sent   int
	}{
		"GET":             {method: "GET", status: 403, sent: 1},
		"POST with a key": {method: "POST", header: []string{"Idempotency-Key", "k"}, status: 403, sent: 1},
		"permitted":       {method: "GET", hook: true, status: 200, sent: 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &permissionServer{forbidden: map[string]int{"/items/2": 1}}
			var asked []bool
			tr := &Transport{Base: s, Retry: &RetryPolicy{ShouldRetry: func(_ *http.Request, resp *http.Response, _ error, retry bool) (bool, error) {
				asked = append(asked, retry)
				return retry || tt.hook && resp.StatusCode == http.StatusForbidden, nil
			}}}
			for range 20 {
				require.Equal(t, 200, call(t, tr, tt.method, "/items/1", tt.header...).StatusCode, name)
			}
			asked = nil
			resp := call(t, tr, tt.method, "/items/2", tt.header...)
			require.Equal(t, tt.status, resp.StatusCode, name)
			require.Len(t, s.sent, 20+tt.sent, name)
			require.False(t, asked[0], name)
			info, _ := InfoFrom(resp)
			require.NoError(t, info.StopReason, name)
			start := time.Now()
			require.Equal(t, 200, call(t, tr, tt.method, "/items/1", tt.header...).StatusCode, name)
			require.Zero(t, time.Since(start), name)
		})
	}
}
