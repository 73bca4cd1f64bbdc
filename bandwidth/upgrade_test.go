package bandwidth_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/bandwidth"
	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
)

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"

// upgrading returns a handler that upgrades each connection and calls serve with it.
func upgrading(t *testing.T, serve func(net.Conn, *bufio.ReadWriter)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if !assert.NoError(t, err) {
			return
		}
		defer conn.Close()
		io.WriteString(rw, switching)
		assert.NoError(t, rw.Flush())
		serve(conn, rw)
	})
}

// upgrade returns the connection of an upgraded request.
func upgrade(t *testing.T, ctx context.Context, rt http.RoundTripper, url string) io.ReadWriteCloser {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	req.Header.Set("Connection", "upgrade")
	req.Header.Set("Upgrade", "echo")
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	return resp.Body.(io.ReadWriteCloser)
}

// TestUpgrade_isPacedInBothDirections sends 1,000 bytes and their echo at 100 bytes per
// second, paced by the client or by the server, after the end of the context of the request.
func TestUpgrade_isPacedInBothDirections(t *testing.T) {
	slow := func() throttle.Limiter { return throttle.NewTokenBucket(throttle.PerSecond(100)) }
	for name, tt := range map[string]struct {
		clientUp, clientDown, serverUp, serverDown throttle.Limiter
		want                                       time.Duration
	}{
		"not paced":        {want: 0},
		"client, upload":   {clientUp: slow(), want: 9 * time.Second},
		"client, download": {clientDown: slow(), want: 9 * time.Second},
		"server, read":     {serverUp: slow(), want: 9 * time.Second},
		"server, write":    {serverDown: slow(), want: 9*time.Second + time.Duration(len(switching))*10*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &bandwidth.Middleware{Upload: tt.serverUp, Download: tt.serverDown}
				s := memhttp.NewServer(m.Handler(upgrading(t, func(_ net.Conn, rw *bufio.ReadWriter) {
					message := make([]byte, 1000)
					_, err := io.ReadFull(rw, message)
					assert.NoError(t, err)
					rw.Write(message)
					assert.NoError(t, rw.Flush())
					_, err = rw.ReadByte()
					assert.Equal(t, io.EOF, err, "CloseWrite arrives")
				})))
				defer s.Close()
				ctx, cancel := context.WithCancel(t.Context())
				conn := upgrade(t, ctx, &bandwidth.Transport{Base: s.Transport(), Upload: tt.clientUp, Download: tt.clientDown}, s.URL)
				cancel()
				begin := time.Now()
				_, err := conn.Write(make([]byte, 1000))
				require.NoError(t, err)
				_, err = io.ReadFull(conn, make([]byte, 1000))
				require.NoError(t, err)
				require.Equal(t, tt.want, time.Since(begin))
				require.NoError(t, conn.(interface{ CloseWrite() error }).CloseWrite())
				_, err = conn.Read(make([]byte, 1))
				require.Equal(t, io.EOF, err)
				require.NoError(t, conn.Close())
			})
		})
	}
}

// TestUpgrade_closeEndsWaits closes a connection while a Read and a Write wait.
func TestUpgrade_closeEndsWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(upgrading(t, func(conn net.Conn, _ *bufio.ReadWriter) {
			io.Copy(conn, zerosOf(10_000))
			io.Copy(io.Discard, conn)
		}))
		defer s.Close()
		limit := throttle.NewTokenBucket(throttle.PerSecond(10))
		conn := upgrade(t, t.Context(), &bandwidth.Transport{Base: s.Transport(), Upload: limit, Download: limit}, s.URL)
		begin := time.Now()
		var both sync.WaitGroup
		both.Go(func() {
			_, err := io.Copy(io.Discard, conn)
			assert.ErrorIs(t, err, net.ErrClosed)
		})
		both.Go(func() {
			n, err := conn.Write(make([]byte, 10_000))
			assert.ErrorIs(t, err, net.ErrClosed)
			assert.Less(t, n, 100)
		})
		time.Sleep(3 * time.Second)
		require.NoError(t, conn.Close())
		both.Wait()
		require.Equal(t, 3*time.Second, time.Since(begin))
	})
}

// TestHijack_keepsBytesThatHaveArrived checks that what a client sends together with its
// request is neither lost nor free.
func TestHijack_keepsBytesThatHaveArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := &probe{decide: grantAll}
		got := make(chan string, 1)
		m := &bandwidth.Middleware{Upload: limit}
		s := memhttp.NewServer(m.Handler(upgrading(t, func(conn net.Conn, rw *bufio.ReadWriter) {
			early, late := make([]byte, 5), make([]byte, 4)
			io.ReadFull(rw, early)
			io.ReadFull(conn, late)
			got <- string(early) + string(late)
		})))
		defer s.Close()
		c, err := s.Transport().DialContext(t.Context(), "tcp", "")
		require.NoError(t, err)
		defer c.Close()
		io.WriteString(c, "GET / HTTP/1.1\r\nHost: mem.test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nearly")
		synctest.Wait()
		io.WriteString(c, "late")
		require.Equal(t, "earlylate", <-got)
		used, _ := limit.result()
		require.EqualValues(t, 9, used)
	})
}

// TestHijack_deadlinesEndWaits checks that a connection can be used after a deadline, and has
// lost nothing.
func TestHijack_deadlinesEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := throttle.NewTokenBucket(throttle.PerSecond(100))
		m := &bandwidth.Middleware{Upload: limit, Download: limit}
		ended := make(chan struct{})
		s := memhttp.NewServer(m.Handler(upgrading(t, func(conn net.Conn, _ *bufio.ReadWriter) {
			defer close(ended)
			limit.Reserve(t.Context(), throttle.Claim{Cost: 100})
			begin, buf := time.Now(), make([]byte, 50)
			conn.SetDeadline(begin.Add(100 * time.Millisecond))
			n, err := conn.Read(buf)
			assert.NoError(t, err, "the bytes have arrived")
			message := string(buf[:n])
			for _, call := range []func([]byte) (int, error){conn.Read, conn.Write} {
				_, err := call(make([]byte, 50))
				var timeout net.Error
				if assert.ErrorAs(t, err, &timeout) {
					assert.True(t, timeout.Timeout())
				}
				assert.Equal(t, 100*time.Millisecond, time.Since(begin))
			}
			conn.SetReadDeadline(begin.Add(time.Hour))
			conn.SetWriteDeadline(time.Time{})
			for len(message) < 60 {
				n, err := conn.Read(buf)
				if !assert.NoError(t, err) {
					return
				}
				message += string(buf[:n])
			}
			assert.Equal(t, "012345678901234567890123456789012345678901234567890123456789", message)
			n, err = conn.Write([]byte("done"))
			assert.NoError(t, err)
			assert.Equal(t, 4, n)
			assert.NotNil(t, conn.(interface{ NetConn() net.Conn }).NetConn())
		})))
		defer s.Close()
		conn := upgrade(t, t.Context(), s.Transport(), s.URL)
		defer conn.Close()
		io.WriteString(conn, "012345678901234567890123456789012345678901234567890123456789")
		reply, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, "done", string(reply))
		<-ended
	})
}

// TestHijack_chunksOfTwoWritesDoNotMix checks that a Write of a connection is atomic, as that
// of a net.Conn.
func TestHijack_chunksOfTwoWritesDoNotMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &bandwidth.Middleware{Download: throttle.NewTokenBucket(throttle.PerSecond(100))}
		s := memhttp.NewServer(m.Handler(upgrading(t, func(conn net.Conn, _ *bufio.ReadWriter) {
			var all sync.WaitGroup
			for _, letter := range "abc" {
				all.Go(func() {
					message := make([]byte, 400)
					for i := range message {
						message[i] = byte(letter)
					}
					conn.Write(message)
				})
			}
			all.Wait()
		})))
		defer s.Close()
		conn := upgrade(t, t.Context(), s.Transport(), s.URL)
		defer conn.Close()
		for range 3 {
			message := make([]byte, 400)
			_, err := io.ReadFull(conn, message)
			require.NoError(t, err)
			for _, c := range message {
				require.Equal(t, message[0], c)
			}
		}
	})
}
