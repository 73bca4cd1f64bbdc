package heed_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
)

// A countingBase counts the requests that reach it.
type countingBase int

func (b *countingBase) RoundTrip(r *http.Request) (*http.Response, error) {
	*b++
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// TestTransport_rejectsRequestsThatCannotBeSent checks the error of each request that cannot be
// sent as it is, and that such a request does not reach Base.
func TestTransport_rejectsRequestsThatCannotBeSent(t *testing.T) {
	for _, tt := range []struct {
		edit func(*http.Request)
		want string // "": it is sent
	}{
		{func(*http.Request) {}, ""},
		{func(r *http.Request) { r.Method = "" }, ""},
		{func(r *http.Request) { r.Method = "BREW" }, ""},
		{func(r *http.Request) { r.Host = "other.test:80" }, ""},
		{func(r *http.Request) { r.Trailer = http.Header{"X-Sum": {"1"}} }, ""},
		{func(r *http.Request) { r.Header["X-Empty"] = []string{""} }, ""},
		{func(r *http.Request) { r.URL.Scheme = "http" }, ""},
		{func(r *http.Request) { r.URL = nil }, "heed: the request has no URL"},
		{func(r *http.Request) { r.URL.Scheme, r.URL.Host, r.Host = "http+unix", "", "%2Frun%2Fdocker.sock" }, ""}, // of Base alone
		{func(r *http.Request) { r.URL.Scheme = "" }, `heed: unsupported protocol scheme ""`},
		{func(r *http.Request) { r.URL.Host = "" }, "heed: the URL has no host"},
		{func(r *http.Request) { r.Host, r.URL.Host = "bücher.example", "bücher.example" }, ""},
		{func(r *http.Request) { r.Host, r.URL.Host = "例え.テスト:8080", "例え.テスト:8080" }, ""},
		{func(r *http.Request) { r.Host = "xn--bcher-kva.example" }, ""},
		{func(r *http.Request) { r.Host = "[::1]:80" }, ""},
		{func(r *http.Request) { r.Host = "bü cher" }, "heed: Request.Host has a character"},
		{func(r *http.Request) { r.Host = "a b" }, "heed: Request.Host has a character"},
		{func(r *http.Request) { r.Method = "GET /" }, `heed: the method "GET /" is not a token`},
		{func(r *http.Request) { r.Header = nil }, "heed: the request has no Header"},
		{func(r *http.Request) { r.Header["X A"] = []string{"secret"} }, `heed: invalid header field name "X A"`},
		{func(r *http.Request) { r.Header["X-A"] = []string{"ok", "secret\n"} }, `heed: invalid header field value for "X-A"`},
		{func(r *http.Request) { r.Trailer = http.Header{"X A": nil} }, `heed: invalid trailer field name "X A"`},
		{func(r *http.Request) { r.Trailer = http.Header{"X-A": {"secret\x00"}} }, `heed: invalid trailer field value for "X-A"`},
	} {
		var base countingBase
		r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "https://api.test/path", nil)
		require.NoError(t, err)
		u := *r.URL
		r.URL = &u
		tt.edit(r)
		resp, err := (&heed.Transport{Base: &base}).RoundTrip(r)
		if tt.want == "" {
			require.NoError(t, err)
			resp.Body.Close()
			require.EqualValues(t, 1, base)
			continue
		}
		require.ErrorContains(t, err, tt.want)
		require.NotContains(t, err.Error(), "secret")
		require.Zero(t, base, tt.want)
	}
}

// TestTransport_rejectsANilRequest checks that a request that is nil is an error, and no panic.
func TestTransport_rejectsANilRequest(t *testing.T) {
	resp, err := new(heed.Transport).RoundTrip(nil)
	require.EqualError(t, err, "heed: the request is nil")
	require.Nil(t, resp)
}

// TestAttempt_String checks the text of an attempt in an error.
func TestAttempt_String(t *testing.T) {
	for want, a := range map[string]heed.Attempt{
		"404 Not Found":   {Status: 404},
		`503 "try later"`: {Status: 503, Body: "try later"},
		"fault":           {Status: 503, Body: "try later", Err: &url.Error{Op: "Get", URL: "u", Err: context.Canceled}},
	} {
		if a.Err != nil {
			want = a.Err.Error()
		}
		require.Equal(t, want, a.String())
	}
}
