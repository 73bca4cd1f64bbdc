package heedtest_test

import (
	"crypto/x509"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/heedtest"
)

// TestServer_speaksTLS checks the protocol, and that the Transport trusts the server for every
// host, in memory and on a socket, also after a century, and that other clients do not.
func TestServer_speaksTLS(t *testing.T) {
	for _, p := range protocols {
		newServer := func() *heedtest.Server { return &heedtest.Server{HTTP2: p.http2, TLS: p.tls} }
		scheme, proto, alpn := "http://", "HTTP/1.1", "" // net/http negotiates nothing for HTTP/1.1
		if p.tls {
			scheme = "https://"
		}
		if p.http2 {
			proto, alpn = "HTTP/2.0", "h2"
		}
		check := func(t *testing.T, s *heedtest.Server) {
			c := s.Client()
			defer c.CloseIdleConnections()
			urls := []string{s.URL + "/a", scheme + "api.example.com/b", scheme + "10.example/c"}
			for _, url := range urls {
				resp, err := c.Get(url)
				require.NoError(t, err, url)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				require.Equal(t, proto, resp.Proto)
				require.Equal(t, p.tls, resp.TLS != nil)
				if p.tls {
					require.Equal(t, alpn, resp.TLS.NegotiatedProtocol)
				}
			}
			require.Len(t, s.Requests(), len(urls))
			require.Contains(t, s.URL, scheme)
		}
		s := newServer()
		inMemory(t, s, func(t *testing.T) { check(t, s) })
		if !p.http2 { // Go 1.25 cannot use HTTP/2 in several bubbles
			s = newServer()
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(100 * 365 * 24 * time.Hour)
				s.StartInMemory()
				defer s.Close()
				check(t, s)
			})
		}
		s = newServer()
		s.Start()
		check(t, s)
		if p.tls {
			transport := s.Transport()
			transport.TLSClientConfig = nil
			_, err := transport.RoundTrip(mustRequest(t, s.URL))
			require.ErrorAs(t, err, new(x509.UnknownAuthorityError))
		}
		s.Close()
	}
}

func mustRequest(t *testing.T, url string) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	require.NoError(t, err)
	return r
}

// TestServer_keyCanReadTLS checks that the functions of the server that receive an http.Request
// can tell how it arrived.
func TestServer_keyCanReadTLS(t *testing.T) {
	for _, p := range protocols {
		var names []string
		s := &heedtest.Server{HTTP2: p.http2, TLS: p.tls, Key: func(r *http.Request) string {
			name := ""
			if r.TLS != nil {
				name = r.TLS.ServerName
			}
			names = append(names, name)
			return name
		}}
		inMemory(t, s, func(t *testing.T) {
			_, _, err := fetch(s.Client(), "GET", s.URL, "")
			require.NoError(t, err)
			want := ""
			if p.tls {
				want = "heedtest.test"
			}
			require.Equal(t, []string{want}, names)
		})
	}
}
