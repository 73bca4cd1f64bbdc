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

func dialing(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

var refused = dialing(os.NewSyscallError("connect", syscall.ECONNREFUSED))

var failures = []scenario{
	{number: 21, what: "connection refused: all attempts, for any method", run: func(t *testing.T) {
		for _, method := range []string{"GET", "POST"} {
			s := plays(refused)
			_, err := ask(t, s, method)
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			require.Equal(t, 3, s.sent())
		}
	}},
	{number: 22, what: "a server that starts later", run: wants(200, 3, refused, refused, 200)},
	{number: 23, what: "unknown host: final, and the chain of errors as it was", run: func(t *testing.T) {
		s := plays(dialing(&net.DNSError{Err: "no such host", Name: "api.test", IsNotFound: true}))
		_, err := NewClient(&Transport{Base: s, Retry: three()}).Get("http://api.test/")
		require.Equal(t, 1, s.sent())
		var u *url.Error
		require.ErrorAs(t, err, &u)
		require.Same(t, s.steps[0], u.Err)
		var d *net.DNSError
		require.ErrorAs(t, err, &d)
	}},
	{number: 24, what: "a temporary DNS error is retried, for any method", run: wantsOf("POST", 200, 2, dialing(&net.DNSError{Err: "try again", IsTemporary: true}), 200)},
	{number: 25, what: "the last error is the very value", run: func(t *testing.T) {
		own := &temporary{}
		_, err := (&Transport{Base: plays(own), Retry: &Retry{Attempts: 2}}).RoundTrip(request(t, "GET", ""))
		var g *GiveUpError
		require.ErrorAs(t, err, &g)
		require.Len(t, g.Attempts, 2)
		require.Same(t, own, g.Err)
	}},
	{number: 26, what: "EOF is perhaps sent", run: func(t *testing.T) {
		wants(200, 2, io.EOF, 200)(t)
		s := plays(io.EOF, 200)
		_, err := ask(t, s, "POST")
		require.ErrorIs(t, err, io.EOF)
		require.ErrorIs(t, err, ErrUnsafe)
		require.Equal(t, 1, s.sent())
	}},
	{number: 27, what: "a net.OpError that timed out", run: wants(200, 2, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, 200)},
	{number: 28, what: "a deadline of an attempt is a timeout", run: wants(200, 2, context.DeadlineExceeded, 200)},
	{number: 29, what: "unknown authority: once", real: true, run: func(t *testing.T) {
		failsOnce(t, tlsServer(t, nil), &http.Transport{})
	}},
	{number: 30, what: "wrong host name: once", real: true, run: func(t *testing.T) {
		s := tlsServer(t, nil)
		base := s.Client().Transport.(*http.Transport)
		base.TLSClientConfig.ServerName = "elsewhere.test"
		failsOnce(t, s, base)
	}},
	{number: 31, what: "client certificate wanted, no TLS at all: once", real: true, run: func(t *testing.T) {
		s := tlsServer(t, &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert})
		failsOnce(t, s, s.Client().Transport.(*http.Transport))
		plain := httptest.NewServer(http.NotFoundHandler())
		t.Cleanup(plain.Close)
		plain.URL = "https" + plain.URL[len("http"):]
		failsOnce(t, plain, &http.Transport{})
	}},
	{number: 32, what: "a loop of redirects is not retried", run: func(t *testing.T) {
		s := plays(answer{302, "", []string{"Location", "http://api.test/items"}})
		_, err := NewClient(&Transport{Base: s}).Get("http://api.test/items")
		require.ErrorContains(t, err, "stopped after 10 redirects")
		require.Equal(t, 10, s.sent())
	}},
	{number: 33, what: "a scheme that is none: nothing sent", run: refuses(func(r *http.Request) { r.URL.Scheme = "ftp" }, "scheme")},
	{number: 34, what: "a header name that is none: nothing sent", run: refuses(func(r *http.Request) { r.Header["bad name"] = []string{"x"} }, `"bad name"`)},
	{number: 35, what: "a header value that is none: nothing sent, and the value not told", run: refuses(func(r *http.Request) { r.Header.Set("X-Key", "secret\n") }, `"X-Key"`)},
	{number: 36, what: "no host: nothing sent", run: refuses(func(r *http.Request) { r.URL.Host = "" }, "host")},
	{number: 37, what: "no URL: nothing sent", run: refuses(func(r *http.Request) { r.URL = nil }, "URL")},
	{number: 38, what: "an error marked as permanent", run: func(t *testing.T) {
		type permanent struct{ error }
		r := three()
		r.Again = func(_ *http.Request, _ *http.Response, err error, again bool) (bool, error) {
			var p permanent
			return again && !errors.As(err, &p), nil
		}
		s := plays(errBroken, permanent{errBroken})
		_, err := get(t, &Transport{Base: s, Retry: r})
		require.ErrorIs(t, err, permanent{errBroken})
		require.Equal(t, 2, s.sent())
	}},
	{number: 39, what: "no header in time: retried", run: func(t *testing.T) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request, n int64) {
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

// tlsServer returns a server on a real socket that answers every request well.
func tlsServer(t *testing.T, c *tls.Config) *httptest.Server {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ReadTimeout, s.Config.WriteTimeout = 5*time.Second, 5*time.Second // a hang fails in seconds
	s.TLS = c
	s.Config.ErrorLog = quiet
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}

// failsOnce checks that a request to s fails for good at the first attempt.
func failsOnce(t *testing.T, s *httptest.Server, b *http.Transport) {
	t.Helper()
	defer b.CloseIdleConnections()
	attempts := 0
	tr := &Transport{Base: b, Trace: &Trace{Send: func(*http.Request, Step) { attempts++ }}}
	_, err := NewClient(tr).Get(s.URL)
	require.Error(t, err)
	require.Equal(t, 1, attempts, err)
}

// refuses checks that a request is refused before the first attempt, with an error
// that names what is wrong, and that its body is closed.
func refuses(spoil func(*http.Request), name string) func(*testing.T) {
	return func(t *testing.T) {
		s := plays(200)
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
