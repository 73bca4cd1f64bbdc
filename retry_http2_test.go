package heed

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
)

// TestTransport_enhanceYourCalmIsARejection checks the HTTP/2 errors of net/http: ENHANCE_YOUR_CALM, for a stream
// or a connection, is a rejection that states no time, and other errors are failures. A request that the
// connection did not process is sent again for any method; the others only if they are idempotent.
func TestTransport_enhanceYourCalmIsARejection(t *testing.T) {
	reset := func(code http2.ErrCode) func(*http2Conn, uint32) {
		return func(c *http2Conn, stream uint32) { c.WriteRSTStream(stream, code) }
	}
	goAway := func(code http2.ErrCode, processed uint32) func(*http2Conn, uint32) {
		return func(c *http2Conn, stream uint32) {
			c.WriteGoAway(stream*processed, code, []byte("too_many_pings"))
			c.Close()
		}
	}
	for _, tt := range []struct {
		name      string
		fail      func(*http2Conn, uint32)
		throttled bool
		repeats   []string
	}{
		{"calm", reset(http2.ErrCodeEnhanceYourCalm), true, []string{"GET"}},
		{"calm, connection", goAway(http2.ErrCodeEnhanceYourCalm, 1), true, []string{"GET"}},
		{"calm, connection, not processed", goAway(http2.ErrCodeEnhanceYourCalm, 0), true, []string{"GET", "POST"}},
		{"another error, connection, not processed", goAway(http2.ErrCodeInternal, 0), false, []string{"GET", "POST"}},
		{"another error, connection", goAway(http2.ErrCodeInternal, 1), false, []string{"GET"}},
		{"another error", reset(http2.ErrCodeInternal), false, []string{"GET"}},
	} {
		for _, method := range []string{"GET", "POST"} {
			synctest.Test(t, func(t *testing.T) {
				f := newHTTP2Server(func(c *http2Conn, stream uint32, n int64) {
					if n == 1 {
						tt.fail(c, stream)
						return
					}
					c.respond(stream, 200)
				})
				defer f.close()
				var outcomes []throttle.Outcome
				tr := &Transport{Base: f.base, Trace: &Trace{
					AttemptDone: func(_ *http.Request, i AttemptInfo) { outcomes = append(outcomes, i.Outcome) },
				}}
				_, err := tr.RoundTrip(request(t, method, "abc"))
				if len(tt.repeats) == 1 && method == "POST" {
					require.ErrorContains(t, err, ErrNotIdempotent.Error(), "%s %s", tt.name, method)
				} else {
					require.NoError(t, err, "%s %s", tt.name, method)
				}
				require.Equal(t, tt.throttled, outcomes[0] == throttle.Throttled, "%s %s: %v", tt.name, method, outcomes)
				require.Equal(t, tt.throttled, outcomes[0] != throttle.Failed, "%s %s: %v", tt.name, method, outcomes)
			})
		}
	}
}

// TestTransport_bodyOfAnotherLengthIsSentOnce checks that a request whose body is longer or shorter than
// its ContentLength is not sent again, because it would fail again.
//
// Package net/http does not always return that error: the response may arrive before, or that its connection was closed because of it.
func TestTransport_bodyOfAnotherLengthIsSentOnce(t *testing.T) {
	reader := func(s string) func() io.Reader { return func() io.Reader { return strings.NewReader(s) } }
	stream := func(s string) func() io.Reader {
		return func() io.Reader { return io.MultiReader(strings.NewReader(s)) }
	}
	for name, tt := range map[string]struct {
		start func(http.Handler) *memhttp.Server
		body  func() io.Reader
		want  string
	}{
		"short":           {memhttp.NewServer, reader("123"), "http: ContentLength=5 with Body length 3"},
		"short stream":    {memhttp.NewServer, stream("123"), "http: ContentLength=5 with Body length 3"},
		"long":            {memhttp.NewServer, reader("12345678"), "http: ContentLength=5 with Body length 8"},
		"long stream":     {memhttp.NewServer, stream("12345678"), "http: ContentLength=5 with Body length 8"},
		"long, h2":        {memhttp.NewHTTP2Server, reader("12345678"), "larger than specified content length"},
		"long stream, h2": {memhttp.NewHTTP2Server, stream("12345678"), "larger than specified content length"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := tt.start(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
				defer s.Close()
				base := s.Transport()
				defer base.CloseIdleConnections()
				var err error
				for range 20 {
					_, err = (&Transport{Base: base}).RoundTrip(put(t, tt.body(), 5))
					if err != nil && !strings.Contains(err.Error(), "use of closed network connection") {
						break
					}
				}
				require.ErrorContains(t, err, tt.want)
				var gaveUp *GiveUpError
				require.False(t, errors.As(err, &gaveUp), "it is the error of Base")
			})
		})
	}
}
