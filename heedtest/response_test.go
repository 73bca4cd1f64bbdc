package heedtest_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/heedtest"
	"github.com/stretchr/testify/require"
)

// bubblesShareHTTP2 is true if bubbles of synctest share channels of the HTTP/2 server of
// net/http: the runtime then stops the program.
var bubblesShareHTTP2 = strings.HasPrefix(runtime.Version(), "go1.25")

// protocols are the protocols that a Server supports.
var protocols = []struct{ http2, tls bool }{{false, false}, {false, true}, {true, false}, {true, true}}

// inMemory runs f in a bubble with s.
//
// If f hangs, or loops without end, it panics after a day of the bubble's time, which takes
// less than a second.
func inMemory(t *testing.T, s *heedtest.Server, f func(*testing.T)) {
	if s.HTTP2 && bubblesShareHTTP2 {
		t.Skip("the HTTP/2 server of Go 1.25 shares channels between bubbles of synctest")
	}
	synctest.Test(t, func(t *testing.T) {
		defer time.AfterFunc(24*time.Hour, func() { panic("the test hangs") }).Stop()
		s.StartInMemory()
		defer s.Close()
		f(t)
	})
}

// fetch sends a request with c and reads the complete response.
func fetch(c *http.Client, method, url, body string) (status int, got string, err error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all), err
}

func TestServer_zeroValueResponds(t *testing.T) {
	new(heedtest.Server).Close() // Close before Start is allowed
	for _, p := range protocols {
		s := &heedtest.Server{HTTP2: p.http2, TLS: p.tls}
		inMemory(t, s, func(t *testing.T) {
			status, body, err := fetch(s.Client(), "PUT", s.URL+"/a?b=c", "hello")
			require.NoError(t, err)
			require.Equal(t, 200, status)
			require.Equal(t, "ok\n", body)
		})
	}
}

// TestFault_plainClientFails checks that a plain client observes each fault, in memory and
// on a socket.
func TestFault_plainClientFails(t *testing.T) {
	const half = "0123456789"
	timeout := context.DeadlineExceeded
	for name, tt := range map[string]struct {
		fault    heedtest.Fault
		err      error  // over HTTP/1.1
		errHTTP2 string // over HTTP/2; after a reset, readers may see EOF instead
		body     string // the part of the body that arrives nevertheless
	}{
		"hang":       {heedtest.Hang, timeout, "deadline exceeded", ""},
		"drop":       {heedtest.Drop, io.EOF, "INTERNAL_ERROR", ""},
		"reset":      {heedtest.Reset, syscall.ECONNRESET, "connection reset|EOF", ""},
		"half-open":  {heedtest.HalfOpenConn, timeout, "deadline exceeded", ""},
		"cut body":   {heedtest.CutBody, io.ErrUnexpectedEOF, "INTERNAL_ERROR", half},
		"reset body": {heedtest.ResetBody, syscall.ECONNRESET, "connection reset|EOF", half},
		"hang body":  {heedtest.HangBody, timeout, "deadline exceeded", half},
	} {
		answer := heedtest.Script(heedtest.Response{Body: half + half, Fault: tt.fault})
		check := func(t *testing.T, s *heedtest.Server) {
			c := s.Client()
			if tt.err == timeout {
				c.Timeout = 100 * time.Millisecond
			}
			defer c.CloseIdleConnections()
			// A POST, because the Transport itself retries a GET on a dropped connection.
			_, body, err := fetch(c, "POST", s.URL, "x")
			if s.HTTP2 {
				require.Error(t, err, name)
				require.Regexp(t, tt.errHTTP2, err.Error(), name)
			} else {
				require.ErrorIs(t, err, tt.err, name)
				require.Contains(t, []string{tt.body, ""}, body, name)
			}
			c = s.Client() // a new client, so that the connection is new
			_, body, err = fetch(c, "POST", s.URL, "x")
			require.NoError(t, err, name)
			require.Equal(t, "ok\n", body, name)
			c.CloseIdleConnections()
		}
		for _, p := range protocols {
			s := &heedtest.Server{Respond: answer, HTTP2: p.http2, TLS: p.tls}
			inMemory(t, s, func(t *testing.T) { check(t, s) })
			answer = heedtest.Script(heedtest.Response{Body: half + half, Fault: tt.fault})
			s = &heedtest.Server{Respond: answer, HTTP2: p.http2, TLS: p.tls}
			s.Start()
			check(t, s)
			s.Close()
			answer = heedtest.Script(heedtest.Response{Body: half + half, Fault: tt.fault})
		}
	}
}

func TestFault_endlessBodyEndsWithTheClient(t *testing.T) {
	for _, p := range protocols {
		s := &heedtest.Server{HTTP2: p.http2, TLS: p.tls, Respond: heedtest.Script(heedtest.Response{Fault: heedtest.Endless, Body: "1234", ByteInterval: time.Second})}
		inMemory(t, s, func(t *testing.T) {
			c := s.Client()
			c.Timeout = 3500 * time.Millisecond
			_, body, err := fetch(c, "GET", s.URL, "")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Equal(t, "1234123412341234", body)
		})
	}
}

func TestFault_hangConnBreaksTheNextRequest(t *testing.T) {
	for _, p := range protocols {
		s := &heedtest.Server{HTTP2: p.http2, TLS: p.tls, Respond: heedtest.Script(heedtest.Response{Fault: heedtest.HangConn})}
		inMemory(t, s, func(t *testing.T) {
			c := s.Client()
			c.Timeout = time.Minute
			_, body, err := fetch(c, "GET", s.URL, "")
			require.NoError(t, err)
			require.Equal(t, "ok\n", body)
			time.Sleep(time.Second)
			_, _, err = fetch(c, "GET", s.URL, "")
			require.ErrorIs(t, err, context.DeadlineExceeded, "a plain client trusts the connection")
			require.Len(t, s.Requests(), 1, "nothing arrived")
			require.Equal(t, 1, s.Conns())
		})
	}
}

func TestFault_closeConnBreaksOtherStreams(t *testing.T) {
	s := &heedtest.Server{HTTP2: true, Respond: heedtest.Script(heedtest.Response{Delay: 2 * time.Second}, heedtest.Response{Fault: heedtest.HalfOpenConn})}
	inMemory(t, s, func(t *testing.T) {
		c := s.Client()
		c.Timeout = time.Minute
		slow := make(chan error)
		go func() {
			_, _, err := fetch(c, "POST", s.URL, "slow")
			slow <- err
		}()
		time.Sleep(time.Second)
		_, _, err := fetch(c, "POST", s.URL, "gone")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, <-slow, context.DeadlineExceeded, "on the same connection")
		require.Equal(t, 1, s.Conns())
	})
}

func TestResponse_delayAndByteInterval(t *testing.T) {
	for _, p := range protocols {
		s := &heedtest.Server{HTTP2: p.http2, TLS: p.tls, Respond: func(heedtest.Request) heedtest.Response {
			return heedtest.Response{Delay: 5 * time.Second, Status: 503, Header: http.Header{"X-Why": {"slow"}}, Body: "slowly", ByteInterval: time.Second}
		}}
		inMemory(t, s, func(t *testing.T) {
			start := time.Now()
			resp, err := s.Client().Get(s.URL)
			require.NoError(t, err)
			defer resp.Body.Close()
			require.Equal(t, 5*time.Second, time.Since(start))
			require.Equal(t, 503, resp.StatusCode)
			require.Equal(t, "slow", resp.Header.Get("X-Why"))
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.Equal(t, "slowly", string(body))
			require.Equal(t, 11*time.Second, time.Since(start))
		})
	}
}

func TestResponse_earlyHints(t *testing.T) {
	for _, p := range protocols {
		s := &heedtest.Server{HTTP2: p.http2, TLS: p.tls, Respond: heedtest.Script(heedtest.Response{EarlyHints: http.Header{"Link": {"</a.css>"}}, Delay: time.Second})}
		inMemory(t, s, func(t *testing.T) {
			var early []string
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				Got1xxResponse: func(code int, h textproto.MIMEHeader) error {
					early = append(early, http.StatusText(code), h.Get("Link"))
					return nil
				},
			})
			req, _ := http.NewRequestWithContext(ctx, "GET", s.URL, nil)
			resp, err := s.Client().Do(req)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, []string{"Early Hints", "</a.css>"}, early)
			require.Empty(t, resp.Header.Get("Link"))
			require.Equal(t, 200, s.Requests()[0].Status)
		})
	}
}

func TestResponse_switchesProtocols(t *testing.T) {
	s := &heedtest.Server{Respond: heedtest.Script(heedtest.Response{Status: http.StatusSwitchingProtocols})}
	inMemory(t, s, func(t *testing.T) {
		resp, err := s.Client().Get(s.URL)
		require.NoError(t, err)
		require.Equal(t, 101, resp.StatusCode)
		conn := resp.Body.(io.ReadWriteCloser)
		_, err = conn.Write([]byte("marco"))
		require.NoError(t, err)
		got := make([]byte, 5)
		_, err = io.ReadFull(conn, got)
		require.NoError(t, err)
		require.Equal(t, "marco", string(got))
		require.NoError(t, conn.Close())
		require.Equal(t, 101, s.Requests()[0].Status)
	})
	s = &heedtest.Server{HTTP2: true, Respond: s.Respond}
	s.Respond = heedtest.Script(heedtest.Response{Status: http.StatusSwitchingProtocols})
	inMemory(t, s, func(t *testing.T) {
		status, _, err := fetch(s.Client(), "GET", s.URL, "")
		require.NoError(t, err)
		require.Equal(t, http.StatusNotImplemented, status)
	})
}

func TestServer_skipsBodies(t *testing.T) {
	s := &heedtest.Server{SkipBodies: true, Respond: heedtest.Script(heedtest.Response{Status: 413})}
	inMemory(t, s, func(t *testing.T) {
		resp, err := s.Client().Post(s.URL, "", bytes.NewReader(make([]byte, 8<<20)))
		if err == nil { // a plain client may fail before it reads the response, because it is still writing
			require.Equal(t, 413, resp.StatusCode)
			require.True(t, resp.Close, "the connection is of no more use")
			resp.Body.Close()
		}
		require.Nil(t, s.Requests()[0].Body)
	})
}

func TestServer_closeEndsHangingRequests(t *testing.T) {
	for _, fault := range []heedtest.Fault{heedtest.Hang, heedtest.HalfOpenConn, heedtest.HangBody, heedtest.Endless, heedtest.HangConn} {
		for _, p := range protocols {
			if p.http2 && bubblesShareHTTP2 {
				continue
			}
			s := &heedtest.Server{HTTP2: p.http2, TLS: p.tls, Respond: heedtest.Script(heedtest.Response{Fault: fault, ByteInterval: time.Second})}
			synctest.Test(t, func(t *testing.T) { // the bubble panics if a goroutine remains
				s.StartInMemory()
				failed := make(chan error)
				go func() {
					_, _, err := fetch(s.Client(), "GET", s.URL, "")
					failed <- err
				}()
				time.Sleep(time.Minute)
				s.Close()
				err := <-failed
				require.False(t, fault != heedtest.HangConn && err == nil, "fault %d", fault)
				_, err = s.Client().Get(s.URL)
				require.Error(t, err)
			})
		}
	}
}
