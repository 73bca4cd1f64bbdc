package retryable_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hashicorp/go-retryablehttp"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/retryable"
	"github.com/heed-go/heed/throttle"
)

// TestWrap_preservesWhatDefaultRetryPolicyInspects checks that a client with
// DefaultRetryPolicy makes the same number of attempts with Wrap as without: requests that
// cannot succeed are sent once, and fail with an error with the same text.
func TestWrap_preservesWhatDefaultRetryPolicyInspects(t *testing.T) {
	quiet := log.New(io.Discard, "", 0)
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = quiet
	untrusted.StartTLS()
	defer untrusted.Close()
	loop := httptest.NewServer(http.RedirectHandler("/", http.StatusFound))
	defer loop.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	for name, tt := range map[string]struct {
		url    string
		header string
		sent   int
	}{
		"a certificate that is not trusted": {untrusted.URL, "x", 1},
		"a scheme that is not known":        {"ftp://127.0.0.1/", "x", 1},
		"a header that is not valid":        {loop.URL, "x\n", 1},
		"redirects without end":             {loop.URL, "x", 1},
		"a port that is closed":             {closed.URL, "x", 3},
	} {
		var texts []string
		for _, wrap := range []bool{false, true} {
			sent := 0
			c := retryablehttp.NewClient()
			c.Logger, c.RetryMax, c.RetryWaitMin, c.RetryWaitMax = nil, 2, time.Microsecond, time.Microsecond
			c.RequestLogHook = func(retryablehttp.Logger, *http.Request, int) { sent++ }
			if wrap {
				retryable.Wrap(c, &heed.Transport{Limiter: throttle.NewTokenBucket(throttle.PerSecond(1000))})
			}
			req, err := retryablehttp.NewRequestWithContext(t.Context(), "GET", tt.url, nil)
			require.NoError(t, err)
			req.Header["X-Custom"] = []string{tt.header}
			_, err = c.Do(req)
			require.Error(t, err, name)
			require.Equal(t, tt.sent, sent, "%s, with Wrap: %v: %v", name, wrap, err)
			texts = append(texts, err.Error())
		}
		if name != "a header that is not valid" && name != "a port that is closed" { // the error of heed has more details; the addresses differ
			require.Equal(t, texts[0], texts[1], name)
		}
	}
}

// TestWrap_preservesErrorTypes checks that the error of a certificate is wrapped directly
// by *url.Error, where other CheckRetry functions expect it.
func TestWrap_preservesErrorTypes(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.NotFoundHandler())
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	c := retryablehttp.NewClient()
	c.Logger = nil
	retryable.Wrap(c, nil)
	_, err := c.HTTPClient.Get(srv.URL)
	_, ok := errors.Unwrap(err).(*tls.CertificateVerificationError)
	require.True(t, ok, "%T", errors.Unwrap(err))
}
