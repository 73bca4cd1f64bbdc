package rules_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// sharedFile is a file for a client and a server.
const sharedFile = `
domain: api
values:
  user: {header: X-User}
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 3, unit: second, algorithm: token_bucket, burst: 1}
limits:
  - name: search
    match: GET api.example.com/search/{id}
    key: user
    rate_limit: {requests_per_unit: 1, unit: second, burst: 1}
`

// roundTripFunc is an http.RoundTripper.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// request returns a request of a user.
func request(t *testing.T, user, url string) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	r.Header.Set("X-User", user)
	return r
}

// TestSet_drivesTheTransport sends requests under the limits of the file.
func TestSet_drivesTheTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := rules.Parse([]byte(sharedFile), rules.Config{})
		require.NoError(t, err)
		waiter := &queue.Queue{}
		defer waiter.Close()
		start, sent := time.Now(), map[string][]time.Duration{}
		tr := &heed.Transport{
			Limits: set.Limits,
			Queue:  waiter,
			Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
				key := r.Header.Get("X-User") + r.URL.Path
				sent[key] = append(sent[key], time.Since(start).Round(time.Millisecond))
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
			}),
		}
		for range 3 {
			for _, r := range []*http.Request{
				request(t, "ann", "http://api.example.com/search/7"), request(t, "ann", "http://api.example.com/other"),
			} {
				resp, err := tr.RoundTrip(r)
				require.NoError(t, err)
				resp.Body.Close()
			}
		}
		require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second}, sent["ann/search/7"])
		third := 333 * time.Millisecond
		require.Equal(t, []time.Duration{third, time.Second + third, 2*time.Second + third}, sent["ann/other"])
	})
}

// TestSet_drivesTheMiddleware rejects requests under the limits of the same file.
func TestSet_drivesTheMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := rules.Parse([]byte(sharedFile), rules.Config{})
		require.NoError(t, err)
		m := &throttlehttp.Middleware{Limits: set.Limits}
		h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		status := func(user, url string) int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request(t, user, url))
			return w.Code
		}
		require.Equal(t, 200, status("ann", "http://api.example.com/search/7"))
		time.Sleep(time.Second / 2)
		require.Equal(t, 429, status("ann", "http://api.example.com/search/8"))
		require.Equal(t, 200, status("ann", "http://api.example.com/other"))
		require.Equal(t, 200, status("bob", "http://api.example.com/search/7"))
		time.Sleep(time.Second / 2)
		require.Equal(t, 200, status("ann", "http://api.example.com/search/7/"))
	})
}
