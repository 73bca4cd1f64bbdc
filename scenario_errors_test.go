package heed

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func userinfo(name, password string) *url.Userinfo { return url.UserPassword(name, password) }

func dialError(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

var errConnRefused = dialError(os.NewSyscallError("connect", syscall.ECONNREFUSED))

var errorScenarios = []scenario{
	{number: 21, summary: "connection refused: all attempts, for any method", run: func(t *testing.T) {
		for _, method := range []string{"GET", "POST"} {
			s := newScript(errConnRefused)
			_, err := send(t, s, method)
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			require.Equal(t, 3, s.sent())
		}
	}},
	{number: 22, summary: "a server that starts later", run: expectStatus(200, 3, errConnRefused, errConnRefused, 200)},
	{number: 23, summary: "unknown host: final, and the chain of errors as it was", run: func(t *testing.T) {
		s := newScript(dialError(&net.DNSError{Err: "no such host", Name: "api.test", IsNotFound: true}))
		_, err := NewClient(&Transport{Base: s, Retry: threeAttempts()}).Get("http://api.test/")
		require.Equal(t, 1, s.sent())
		var u *url.Error
		require.ErrorAs(t, err, &u)
		require.Same(t, s.steps[0], u.Err)
		var d *net.DNSError
		require.ErrorAs(t, err, &d)
	}},
	{number: 24, summary: "a temporary DNS error is retried, for any method", run: expectStatusOf("POST", 200, 2, dialError(&net.DNSError{Err: "try again", IsTemporary: true}), 200)},
	{number: 25, summary: "the last error is the very value", run: func(t *testing.T) {
		own := &temporary{}
		_, err := (&Transport{Base: newScript(own), Retry: &RetryPolicy{MaxAttempts: 2}}).RoundTrip(request(t, "GET", ""))
		var g *GiveUpError
		require.ErrorAs(t, err, &g)
		require.Len(t, g.Attempts, 2)
		require.Same(t, own, g.Err)
	}},
	{number: 26, summary: "EOF is perhaps sent", run: func(t *testing.T) {
		expectStatus(200, 2, io.EOF, 200)(t)
		s := newScript(io.EOF, 200)
		_, err := send(t, s, "POST")
		require.ErrorIs(t, err, io.EOF)
		require.ErrorIs(t, err, ErrNotIdempotent)
		require.Equal(t, 1, s.sent())
	}},
	{number: 27, summary: "a net.OpError that timed out", run: expectStatus(200, 2, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, 200)},
	{number: 28, summary: "a deadline of an attempt is a timeout", run: expectStatus(200, 2, context.DeadlineExceeded, 200)},
	{number: 29, summary: "unknown authority: once", real: true, run: func(t *testing.T) {
		expectOneAttempt(t, tlsServer(t, nil), &http.Transport{})
	}},
	{number: 30, summary: "wrong host name: once", real: true, run: func(t *testing.T) {
		s := tlsServer(t, nil)
		base := s.Client().Transport.(*http.Transport)
		base.TLSClientConfig.ServerName = "elsewhere.test"
		expectOneAttempt(t, s, base)
	}},
	{number: 31, summary: "client certificate wanted, no TLS at all: once", real: true, run: func(t *testing.T) {
		s := tlsServer(t, &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert})
		expectOneAttempt(t, s, s.Client().Transport.(*http.Transport))
		plain := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(plain.Close)
		plain.URL = "https" + plain.URL[len("http"):]
		expectOneAttempt(t, plain, &http.Transport{})
	}},
	{number: 32, summary: "a loop of redirects is not retried", run: func(t *testing.T) {
		s := newScript(response{302, "", []string{"Location", "http://api.test/items"}})
		_, err := NewClient(&Transport{Base: s}).Get("http://api.test/items")
		require.ErrorContains(t, err, "stopped after 10 redirects")
		require.Equal(t, 10, s.sent())
	}},
	{number: 33, summary: "a scheme that is none: nothing sent", run: expectInvalid(func(r *http.Request) { r.URL.Scheme = "" }, "scheme")},
	{number: 34, summary: "a header name that is none: nothing sent", run: expectInvalid(func(r *http.Request) { r.Header["bad name"] = []string{"x"} }, `"bad name"`)},
	{number: 35, summary: "a header value that is none: nothing sent, and the value not told", run: expectInvalid(func(r *http.Request) { r.Header.Set("X-Key", "secret\n") }, `"X-Key"`)},
	{number: 36, summary: "no host: nothing sent", run: expectInvalid(func(r *http.Request) { r.URL.Host = "" }, "host")},
	{number: 37, summary: "no URL: nothing sent", run: expectInvalid(func(r *http.Request) { r.URL = nil }, "URL")},
	{number: 38, summary: "an error marked as permanent", run: func(t *testing.T) {
		type permanent struct{ error }
		r := threeAttempts()
		r.ShouldRetry = func(_ *http.Request, _ *http.Response, err error, again bool) (bool, error) {
			var p permanent
			return again && !errors.As(err, &p), nil
		}
		s := newScript(errBroken, permanent{errBroken})
		_, err := get(t, &Transport{Base: s, Retry: r})
		require.ErrorIs(t, err, permanent{errBroken})
		require.Equal(t, 2, s.sent())
	}},
	{number: 39, summary: "no header in time: retried", run: func(t *testing.T) {
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
			if n == 1 {
				time.Sleep(time.Second)
			}
			io.WriteString(w, "here")
		})
		defer s.close()
		s.base.ResponseHeaderTimeout = 150 * time.Millisecond
		resp, err := get(t, &Transport{Base: s.base})
		require.NoError(t, err)
		require.Equal(t, "here", text(t, resp))
		require.EqualValues(t, 2, s.requests.Load())
	}},
}

// tlsServer returns a server on a real socket that responds to every request with 200.
func tlsServer(t *testing.T, c *tls.Config) *httptest.Server {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ReadTimeout, s.Config.WriteTimeout = 5*time.Second, 5*time.Second // a blocked test fails within seconds
	s.TLS = c
	s.Config.ErrorLog = discardLog
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// expectOneAttempt checks that a request to s fails after one attempt.
func expectOneAttempt(t *testing.T, s *httptest.Server, b *http.Transport) {
	t.Helper()
	defer b.CloseIdleConnections()
	attempts := 0
	tr := &Transport{Base: b, Trace: &Trace{AttemptStart: func(*http.Request, AttemptInfo) { attempts++ }}}
	_, err := NewClient(tr).Get(s.URL)
	require.Error(t, err)
	require.Equal(t, 1, attempts, err)
}

// expectInvalid checks that a request is rejected before the first attempt, with an error
// that names what is invalid, and that its body is closed.
func expectInvalid(spoil func(*http.Request), name string) func(*testing.T) {
	return func(t *testing.T) {
		s := newScript(200)
		req := request(t, "POST", "")
		body := &opaque{}
		req.Body = body
		spoil(req)
		_, err := (&Transport{Base: s}).RoundTrip(req)
		require.ErrorContains(t, err, name)
		require.NotContains(t, err.Error(), "secret")
		require.Zero(t, s.sent())
		require.Equal(t, 1, body.closed)
	}
}
