package heedtest_test

import (
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heed-go/heed/heedtest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// respondAlways returns a Server.Respond function that returns a for every request.
func respondAlways(a heedtest.Response) func(heedtest.Request) heedtest.Response {
	return func(heedtest.Request) heedtest.Response { return a }
}

// TestFault_overHTTP2 checks the faults of HTTP/2 with a plain client. net/http retries
// requests that have not been processed, a limited number of times, and only if their
// bodies can be replayed.
func TestFault_overHTTP2(t *testing.T) {
	once := func(f heedtest.Fault) func(heedtest.Request) heedtest.Response {
		return heedtest.Script(heedtest.Response{Fault: f})
	}
	for name, tt := range map[string]struct {
		answer   func(heedtest.Request) heedtest.Response
		body     io.Reader // a strings.Reader can be replayed, other readers cannot
		err      string    // empty means no error
		arrivals int
		conns    int
		tls      bool
	}{
		"refused once":          {answer: once(heedtest.RefuseStream), arrivals: 2, conns: 1},
		"refused always":        {answer: respondAlways(heedtest.Response{Fault: heedtest.RefuseStream}), err: "REFUSED_STREAM", conns: 1},
		"refused, body":         {answer: once(heedtest.RefuseStream), body: io.MultiReader(strings.NewReader("x")), err: "REFUSED_STREAM", arrivals: 1, conns: 1},
		"go away once":          {answer: once(heedtest.GoAway), arrivals: 2, conns: 2},
		"go away, body":         {answer: once(heedtest.GoAway), body: io.MultiReader(strings.NewReader("x")), err: "cannot retry", arrivals: 1, conns: 1},
		"calm, stream":          {answer: once(heedtest.EnhanceYourCalmStream), err: "ENHANCE_YOUR_CALM", arrivals: 1, conns: 1},
		"calm, connection":      {answer: once(heedtest.EnhanceYourCalmConn), err: "ENHANCE_YOUR_CALM", arrivals: 1, conns: 1},
		"refused once, TLS":     {answer: once(heedtest.RefuseStream), arrivals: 2, conns: 1, tls: true},
		"calm, connection, TLS": {answer: once(heedtest.EnhanceYourCalmConn), err: "ENHANCE_YOUR_CALM", arrivals: 1, conns: 1, tls: true},
	} {
		s := &heedtest.Server{HTTP2: true, TLS: tt.tls, Respond: tt.answer}
		inMemory(t, s, func(t *testing.T) {
			resp, err := s.Client().Post(s.URL+"/a", "", tt.body)
			if tt.err != "" {
				require.ErrorContains(t, err, tt.err, name)
			} else {
				require.NoError(t, err, name)
				resp.Body.Close()
			}
			if tt.arrivals == 0 { // the number depends on net/http
				tt.arrivals = max(len(s.Requests()), 2)
			}
			require.Len(t, s.Requests(), tt.arrivals, name)
			require.Equal(t, tt.conns, s.Conns(), name)
		})
	}
}

func TestFault_ofHTTP2DropsHTTP1(t *testing.T) {
	for _, f := range []heedtest.Fault{heedtest.RefuseStream, heedtest.EnhanceYourCalmStream, heedtest.GoAway, heedtest.EnhanceYourCalmConn} {
		s := &heedtest.Server{Respond: respondAlways(heedtest.Response{Fault: f})}
		inMemory(t, s, func(t *testing.T) {
			_, err := s.Client().Post(s.URL, "", nil)
			require.ErrorIs(t, err, io.EOF)
		})
	}
}

// TestFault_resetsOnlyItsStream checks that a stream fault does not end other streams of
// the connection.
func TestFault_resetsOnlyItsStream(t *testing.T) {
	s := &heedtest.Server{HTTP2: true, Respond: func(a heedtest.Request) heedtest.Response {
		if strings.HasPrefix(a.URL, "/bad") {
			return heedtest.Response{Delay: time.Second, Fault: heedtest.EnhanceYourCalmStream}
		}
		return heedtest.Response{Delay: time.Second, Body: strings.Repeat(a.URL, 20000)} // a body of many frames
	}}
	inMemory(t, s, func(t *testing.T) {
		c := s.Client()
		_, _, err := fetch(c, "GET", s.URL, "") // establishes the connection that all requests share
		require.NoError(t, err)
		var all sync.WaitGroup
		for i := range 40 {
			path := []string{"/good", "/bad"}[i%2]
			all.Go(func() {
				_, body, err := fetch(c, "PUT", s.URL+path, strings.Repeat("x", i*1000))
				if path == "/bad" {
					assert.ErrorContains(t, err, "ENHANCE_YOUR_CALM")
					return
				}
				assert.NoError(t, err)
				assert.Equal(t, strings.Repeat(path, 20000), body)
			})
		}
		all.Wait()
		require.Len(t, s.Requests(), 41)
		require.Equal(t, 1, s.Conns())
		for _, a := range s.Requests() {
			require.Empty(t, a.Header["Heedtest-Stream"])
		}
	})
}
