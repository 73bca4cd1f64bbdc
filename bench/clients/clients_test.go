package clients

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// serve interprets the path as a status. "/close" closes the connection; net/http then
// repeats the request if the connection was used before.
func serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/close" {
		panic(http.ErrAbortHandler)
	}
	status, _ := strconv.Atoi(r.URL.Path[1:])
	if r.URL.RawQuery == "limit" {
		w.Header().Set("X-RateLimit-Remaining", "0")
	}
	w.WriteHeader(status)
}

func TestRequestCounter_countsWastedRequests(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(serve))
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.Start()
	defer s.Close()
	for _, tt := range []struct {
		paths                   []string
		sent, throttled, wasted int64
	}{
		{[]string{"/200", "/500", "/404"}, 3, 0, 0},
		{[]string{"/429", "/503", "/403?limit"}, 3, 3, 3},
		{[]string{"/403"}, 1, 0, 1},
		{[]string{"/close"}, 1, 0, 1},
		{[]string{"/200", "/close"}, 3, 0, 2}, // net/http repeats the second request
	} {
		counter := NewRequestCounter(1)
		for _, path := range tt.paths {
			resp, err := (&http.Client{Transport: counter}).Get(s.URL + path)
			if err == nil {
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		}
		counter.CloseIdleConnections()
		require.Equal(t, []int64{tt.sent, tt.throttled, tt.wasted}, []int64{counter.Sent.Load(), counter.Throttled.Load(), counter.Wasted.Load()}, "%v", tt.paths)
	}
}
