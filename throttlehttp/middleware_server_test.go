package throttlehttp_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var closed = &throttlehttp.Middleware{Limiter: fixedDecision{d: throttle.Decision{Wait: 5 * time.Second, Limit: 9}}}

// TestMiddleware_rejectedUploads checks that a rejected upload keeps its connection if
// little of its body is left, and that a long body is not read completely.
func TestMiddleware_rejectedUploads(t *testing.T) {
	endless := func(n int) io.Reader { return io.MultiReader(bytes.NewReader(make([]byte, n))) } // without Content-Length
	for name, tt := range map[string]struct {
		body        func() io.Reader
		connections int32 // number of connections for three requests
		most        int64 // maximum number of bytes read of each body
	}{
		"none":          {func() io.Reader { return nil }, 1, 0},
		"small":         {func() io.Reader { return bytes.NewReader(make([]byte, 1000)) }, 1, 1000},
		"small chunked": {func() io.Reader { return endless(1000) }, 1, 1000},
		"large":         {func() io.Reader { return bytes.NewReader(make([]byte, 8<<20)) }, 3, 1 << 20},
		"large chunked": {func() io.Reader { return endless(8 << 20) }, 3, 1 << 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := memhttp.NewServer(closed.Handler(ok))
			defer s.Close()
			var dialled atomic.Int32
			tr := s.Transport()
			dial := tr.DialContext
			tr.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				dialled.Add(1)
				return dial(ctx, network, addr)
			}
			for range 3 {
				sent := new(counter)
				var body io.Reader
				if tt.body() != nil {
					body = io.TeeReader(tt.body(), sent)
				}
				req, err := http.NewRequest(http.MethodPost, s.URL, body)
				require.NoError(t, err)
				resp, err := (&http.Client{Transport: tr}).Do(req)
				require.NoError(t, err, name)
				require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
				_, err = io.Copy(io.Discard, resp.Body)
				require.NoError(t, err)
				resp.Body.Close()
				synctest.Wait()
				require.LessOrEqual(t, sent.n.Load(), tt.most, name)
			}
			require.Equal(t, tt.connections, dialled.Load(), name)
		})
	}
}

// A counter counts the bytes that are written to it.
type counter struct{ n atomic.Int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// raw sends a request as text and returns the response as text.
func raw(t *testing.T, s *memhttp.Server, request string) string {
	conn, err := s.Transport().DialContext(t.Context(), "tcp", "")
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, request)
	require.NoError(t, err)
	var response bytes.Buffer
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
	_, _ = io.Copy(&response, conn)
	return response.String()
}

func TestMiddleware_rejectsUnusualRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memhttp.NewServer(closed.Handler(ok))
		defer s.Close()
		for name, tt := range map[string]struct {
			request string
			want    []string
			not     []string
		}{
			"HTTP/1.0": {"GET / HTTP/1.0\r\n\r\n", []string{"HTTP/1.0 429 Too Many Requests\r\n", "Content-Length: ", "\r\n\r\n{\n"}, []string{"Transfer-Encoding"}},
			"HEAD":     {"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n", []string{"HTTP/1.1 429 ", "Content-Length: "}, []string{"{"}},
			"expects to be asked for the body": {"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
				[]string{"HTTP/1.1 429 ", "Connection: close"}, []string{"100 Continue"}},
			"wants to upgrade": {"GET / HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", []string{"HTTP/1.1 429 "}, nil},
		} {
			got := raw(t, s, tt.request)
			for _, want := range tt.want {
				require.Contains(t, got, want, name)
			}
			for _, not := range tt.not {
				require.NotContains(t, got, not, name)
			}
		}
	})
}

func TestMiddleware_rejectsOverHTTP2(t *testing.T) {
	if len(servers()) == 1 {
		t.Skip("the HTTP/2 server of Go 1.25 shares channels between bubbles of synctest")
	}
	synctest.Test(t, func(t *testing.T) {
		s := startHTTP2(&http.Server{Handler: closed.Handler(ok)})
		defer s.Close()
		for range 2 {
			resp, err := s.Client().Post(s.URL, "text/plain", strings.NewReader(strings.Repeat("x", 1<<20)))
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, "HTTP/2.0 429 5 "+problem, fmt.Sprint(resp.Proto, " ", resp.StatusCode, " ", resp.Header.Get("Retry-After"), " ", resp.Header.Get("Content-Type")))
			require.Equal(t, resp.Header.Get("Content-Length"), strconv.Itoa(len(body)))
		}
	})
}

// TestMiddleware_hijackedIsInFlight checks that a hijacked connection counts as in use
// until the handler returns.
func TestMiddleware_hijackedIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &throttlehttp.Middleware{Limiter: throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1})}
		s := memhttp.NewServer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			assert.NoError(t, err)
			defer conn.Close()
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\n\r\n")
			_, _ = bufio.NewReader(conn).ReadString('\n')
		})))
		defer s.Close()
		conn, err := s.Transport().DialContext(t.Context(), "tcp", "")
		require.NoError(t, err)
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
		synctest.Wait()
		require.Contains(t, raw(t, s, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "HTTP/1.1 429 ")
		conn.Close()
		synctest.Wait()
		require.Contains(t, raw(t, s, "GET / HTTP/1.1\r\nHost: x\r\n\r\nbye\n"), "HTTP/1.1 101 ")
	})
}
