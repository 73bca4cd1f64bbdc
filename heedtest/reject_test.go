package heedtest_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// Rejections of real servers: limit_req_status of nginx, the status 444, and tarpit and
// silent-drop of HAProxy.
func TestResponse_replacesRejections(t *testing.T) {
	for name, tt := range map[string]struct {
		rejection heedtest.Response
		edit      func(http.Header)
		status    int // 0: an error
		after     time.Duration
		header    string // Retry-After
	}{
		"503":            {heedtest.Response{Status: 503}, heedtest.NoHeaders, 503, 0, ""},
		"403":            {heedtest.Response{Status: 403}, heedtest.NoHeaders, 403, 0, ""},
		"headers kept":   {heedtest.Response{Status: 503}, nil, 503, 0, "1"},
		"header changed": {heedtest.Response{Status: 429, Header: http.Header{"Retry-After": {"9"}}}, nil, 429, 0, "9"},
		"closed":         {heedtest.Response{Fault: heedtest.Drop}, nil, 0, 0, ""},
		"tarpit":         {heedtest.Response{Status: 429, Delay: 3 * time.Second}, heedtest.NoHeaders, 429, 3 * time.Second, ""},
		"silent":         {heedtest.Response{Fault: heedtest.Hang}, nil, 0, 5 * time.Second, ""},
	} {
		s := &heedtest.Server{
			Limit:      &throttlehttp.Middleware{Limiter: throttle.NewTokenBucket(throttle.PerSecond(1)), OnReject: tt.rejection},
			EditHeader: tt.edit,
		}
		t.Run(name, func(t *testing.T) {
			inMemory(t, s, func(t *testing.T) {
				transport := s.Transport()
				transport.ResponseHeaderTimeout = 5 * time.Second
				transport.DisableKeepAlives = true
				c := &http.Client{Transport: transport}
				status, _, err := fetch(c, "GET", s.URL, "")
				require.NoError(t, err)
				require.Equal(t, 200, status)
				start := time.Now()
				resp, err := c.Get(s.URL)
				require.Equal(t, tt.after, time.Since(start))
				if tt.status == 0 {
					require.Error(t, err)
					return
				}
				require.NoError(t, err)
				defer resp.Body.Close()
				require.Equal(t, tt.status, resp.StatusCode)
				require.Equal(t, tt.header, resp.Header.Get("Retry-After"))
				require.Equal(t, tt.status, s.Requests()[1].Status)
			})
		})
	}
}

func TestResponse_panicsElsewhere(t *testing.T) {
	require.PanicsWithValue(t, "heedtest: Response.ServeHTTP: the request was not received by a heedtest.Server", func() {
		heedtest.Response{}.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	})
}
