package heed

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTransport_beforeSendIsNotCalledForOtherHosts checks which redirected requests have the token
// that BeforeSend sets. http.Client decides the same about the token of the caller.
func TestTransport_beforeSendIsNotCalledForOtherHosts(t *testing.T) {
	for name, tt := range map[string]struct {
		urls []string // each redirects to the next one
		want []bool   // whether BeforeSend is called
	}{
		"no redirect":                  {[]string{"https://api.test/a"}, []bool{true}},
		"same host":                    {[]string{"https://api.test/a", "https://api.test/b"}, []bool{true, true}},
		"other spelling":               {[]string{"https://api.test/a", "https://API.test:443/b"}, []bool{true, true}},
		"other port":                   {[]string{"https://api.test/a", "https://api.test:8443/b"}, []bool{true, true}},
		"subdomain":                    {[]string{"https://api.test/a", "https://eu.api.test/b"}, []bool{true, true}},
		"internationalized":            {[]string{"https://bücher.test/a", "https://xn--bcher-kva.test/b"}, []bool{true, true}},
		"parent domain":                {[]string{"https://eu.api.test/a", "https://api.test/b"}, []bool{true, false}},
		"other host":                   {[]string{"https://api.test/a", "https://evil.test/b"}, []bool{true, false}},
		"host that ends with the name": {[]string{"https://api.test/a", "https://evilapi.test/b"}, []bool{true, false}},
		"there and back":               {[]string{"https://api.test/a", "https://evil.test/b", "https://api.test/c"}, []bool{true, false, false}},
	} {
		for _, heedSetsRequest := range []bool{true, false} {
			var called, caller []bool
			base := baseFunc(func(r *http.Request) (*http.Response, error) {
				called = append(called, r.Header.Get("X-Token") != "")
				caller = append(caller, r.Header.Get("Authorization") != "")
				resp := newResponse(200, "")
				if n := len(called); n < len(tt.urls) {
					resp = newResponse(302, "", "Location", tt.urls[n])
				}
				return resp, nil
			})
			policy := &RetryPolicy{BeforeSend: func(r *http.Request, _ int) error {
				r.Header.Set("X-Token", "secret")
				return nil
			}}
			tr := &Transport{Base: base, Retry: policy}
			if heedSetsRequest {
				tr.Base = roundTripFunc(base) // does not set Response.Request
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tt.urls[0], nil)
			require.NoError(t, err)
			req.Header.Set("Authorization", "secret")
			resp, err := NewClient(tr).Do(req)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, tt.want, called, name)
			if name != "other spelling" { // http.Client distinguishes upper and lower case
				require.Equal(t, caller, called, name)
			}
		}
	}
}

// TestTransport_beforeSendIsNotCalledAfterAnUnknownRequest checks a redirected request of which the first
// one is not known.
func TestTransport_beforeSendIsNotCalledAfterAnUnknownRequest(t *testing.T) {
	for name, first := range map[string]*http.Request{"no request": nil, "no URL": {}} {
		req := request(t, "GET", "")
		req.Response = &http.Response{Request: first}
		policy := &RetryPolicy{BeforeSend: func(*http.Request, int) error { return errBroken }}
		resp, err := (&Transport{Base: newScript(200), Retry: policy}).RoundTrip(req)
		require.NoError(t, err, name)
		resp.Body.Close()
	}
}
