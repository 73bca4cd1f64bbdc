package memhttp_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/internal/memhttp"
	"github.com/stretchr/testify/require"
)

// echo responds with the protocol, the path and the body of the request.
func echo(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	io.WriteString(w, r.Proto+" "+r.URL.Path+" "+string(body))
}

func get(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	resp, err := c.Get(url)
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(body)
}

func TestServer_respondsInBothVersions(t *testing.T) {
	for want, start := range map[string]func(http.Handler) *memhttp.Server{
		"HTTP/1.1": memhttp.NewServer,
		"HTTP/2.0": memhttp.NewHTTP2Server,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := start(http.HandlerFunc(echo))
			defer s.Close()
			c := s.Client()
			require.Equal(t, want+" /a ", get(t, c, s.URL+"/a"))
			require.Equal(t, want+" /b ", get(t, c, "http://elsewhere.test/b"))
			big := strings.Repeat("x", 1<<20) // much more than the buffer of a stream
			resp, err := c.Post(s.URL, "text/plain", strings.NewReader(big))
			require.NoError(t, err)
			got, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, want+" / "+big, string(got))
		})
	}
}

func TestServer_fakeTimeAdvances(t *testing.T) {
	for _, start := range []func(http.Handler) *memhttp.Server{memhttp.NewServer, memhttp.NewHTTP2Server} {
		synctest.Test(t, func(t *testing.T) {
			s := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { time.Sleep(time.Hour) }))
			defer s.Close()
			before := time.Now()
			get(t, s.Client(), s.URL)
			require.Equal(t, time.Hour, time.Since(before))
		})
	}
}

func TestServer_clientTimeoutWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		defer s.Close()
		c := s.Client()
		c.Timeout = 3 * time.Second
		before := time.Now()
		_, err := c.Get(s.URL)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(before))
	})
}

func TestServer_readTimeoutWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan error, 1)
		s := memhttp.Start(&http.Server{
			ReadTimeout: 2 * time.Second,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := io.ReadAll(r.Body)
				got <- err
			}),
		})
		defer s.Close()
		body, writer := io.Pipe() // no data is written
		defer writer.Close()
		_, _ = s.Client().Post(s.URL, "", body)
		require.ErrorIs(t, <-got, os.ErrDeadlineExceeded)
	})
}

func TestServer_closeEndsEverything(t *testing.T) {
	for _, start := range []func(http.Handler) *memhttp.Server{memhttp.NewServer, memhttp.NewHTTP2Server} {
		synctest.Test(t, func(t *testing.T) { // a goroutine that does not end makes the bubble panic
			s := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
			c := s.Client()
			failed := make(chan error)
			go func() {
				_, err := c.Get(s.URL)
				failed <- err
			}()
			synctest.Wait()
			s.Close()
			require.Error(t, <-failed)
			_, err := c.Get(s.URL)
			require.ErrorIs(t, err, net.ErrClosed)
		})
	}
}

// A server that responds before it has read the body waits before it closes the connection.
func TestServer_closeWaitsForLingeringConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(413) }))
		if resp, err := s.Client().Post(s.URL, "", strings.NewReader(strings.Repeat("x", 8<<20))); err == nil {
			resp.Body.Close()
		}
		s.Close()
	})
}

func TestServer_closeEndsHijackedConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _, _ = http.NewResponseController(w).Hijack() // no response is sent
		}))
		go func() {
			time.Sleep(time.Second)
			s.Close()
		}()
		_, err := s.Client().Get(s.URL)
		require.ErrorIs(t, err, io.EOF)
	})
}

func TestServer_connectionsHaveDistinctAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, r.RemoteAddr)
		}))
		defer s.Close()
		a, b := s.Client(), s.Client()
		first := get(t, a, s.URL)
		require.Equal(t, first, get(t, a, s.URL), "keep-alive")
		require.NotEqual(t, first, get(t, b, s.URL))
		_, _, err := net.SplitHostPort(first)
		require.NoError(t, err)
	})
}

func TestConn_deadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memhttp.Pipe()
		defer b.Close()
		defer a.Close()
		buf := make([]byte, 8)
		before := time.Now()
		require.NoError(t, a.SetDeadline(before.Add(time.Second)))
		_, err := a.Read(buf)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second, time.Since(before))
		synctest.Wait() // both timers have fired
		_, err = a.Write([]byte("x"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded, "past for the writer too")

		require.NoError(t, a.SetDeadline(time.Time{}))
		require.NoError(t, a.SetWriteDeadline(time.Now().Add(time.Second)))
		n, err := a.Write(make([]byte, 1<<20))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 64<<10, n, "what fitted is on its way")

		require.NoError(t, a.SetReadDeadline(time.Now().Add(time.Second)))
		require.NoError(t, a.SetReadDeadline(time.Now().Add(time.Minute))) // replaces the deadline
		go func() {
			time.Sleep(10 * time.Second)
			b.Write([]byte("late"))
		}()
		n, err = a.Read(buf)
		require.NoError(t, err)
		require.Equal(t, "late", string(buf[:n]))

		go func() { // a deadline in the past wakes a reader that is already waiting
			time.Sleep(time.Second)
			a.SetReadDeadline(time.Unix(1, 0))
		}()
		var timeout net.Error
		_, err = a.Read(buf)
		require.ErrorAs(t, err, &timeout)
		require.True(t, timeout.Timeout())
	})
}

func TestConn_closing(t *testing.T) {
	for name, tt := range map[string]struct {
		close     func(*memhttp.Conn)
		data      string // that the other end can still read
		read      error  // error of the next read
		ownRead   error  // nil: not tested, because it would block
		ownWrite  error
		writeBack error // nil: no error
	}{
		"close": {
			close: func(c *memhttp.Conn) { c.Close() },
			data:  "left", read: io.EOF, ownRead: net.ErrClosed, ownWrite: net.ErrClosed, writeBack: syscall.EPIPE,
		},
		"half": {
			close: func(c *memhttp.Conn) { c.CloseWrite() },
			data:  "left", read: io.EOF, ownWrite: net.ErrClosed,
		},
		"reset": {
			close: func(c *memhttp.Conn) { c.SetLinger(0); c.Close() },
			read:  syscall.ECONNRESET, ownRead: net.ErrClosed, ownWrite: net.ErrClosed, writeBack: syscall.ECONNRESET,
		},
		"reset after half": {
			close: func(c *memhttp.Conn) { c.CloseWrite(); c.SetLinger(0); c.Close() },
			read:  syscall.ECONNRESET, ownRead: net.ErrClosed, ownWrite: net.ErrClosed, writeBack: syscall.ECONNRESET,
		},
	} {
		a, b := memhttp.Pipe()
		_, err := a.Write([]byte("left"))
		require.NoError(t, err)
		tt.close(a)

		buf := make([]byte, 8)
		n, err := b.Read(buf)
		if tt.data != "" {
			require.NoError(t, err, name)
			require.Equal(t, tt.data, string(buf[:n]), name)
			_, err = b.Read(buf)
		}
		require.True(t, errors.Is(err, tt.read), "%s: %v", name, err)
		_, err = b.Write([]byte("x"))
		require.ErrorIs(t, orErrNone(err), orErrNone(tt.writeBack), name)
		_, err = a.Write([]byte("x"))
		require.ErrorIs(t, err, tt.ownWrite, name)
		if tt.ownRead != nil {
			_, err = a.Read(buf)
			require.ErrorIs(t, err, tt.ownRead, name)
		}
		b.Close()
		a.Close()
	}
}

var errNone = errors.New("none")

func orErrNone(err error) error {
	if err == nil {
		return errNone
	}
	return err
}

func TestListener_dialEndsWithContextAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := memhttp.NewListener() // no connection is accepted
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := l.Dial(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		l.Close()
		_, err = l.Dial(t.Context())
		require.ErrorIs(t, err, net.ErrClosed)
	})
}
