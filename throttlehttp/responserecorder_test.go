package throttlehttp_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
)

// recordedResponses stores the responses that were passed to FinalCost.
type recordedResponses struct {
	mu   sync.Mutex
	list []throttlehttp.Response
}

// middleware returns a Middleware with a FinalCost, which needs a responseRecorder.
func (s *recordedResponses) middleware() *throttlehttp.Middleware {
	return &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: throttle.AllowAll, FinalCost: func(_ *http.Request, a throttlehttp.Response) int64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.list = append(s.list, a)
		return 0
	}}}}
}

func (s *recordedResponses) all() []throttlehttp.Response {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list
}

// TestResponseRecorder_preservesWriterInterfaces checks that a recorded ResponseWriter of
// net/http implements the same optional interfaces as without recording.
func TestResponseRecorder_preservesWriterInterfaces(t *testing.T) {
	for i, start := range servers() {
		synctest.Test(t, func(t *testing.T) {
			var seen recordedResponses
			var bare, watched []string
			h := seen.middleware().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				watched = memhttp.Capabilities(w)
				rc := http.NewResponseController(w)
				assert.NoError(t, rc.SetWriteDeadline(time.Now().Add(time.Hour)))
				assert.NoError(t, rc.SetReadDeadline(time.Now().Add(time.Hour)))
				assert.NoError(t, rc.Flush())
			}))
			s := start(&http.Server{ErrorLog: discardLogger, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				bare = memhttp.Capabilities(w)
				h.ServeHTTP(w, r)
			})})
			defer s.Close()
			resp, err := s.Client().Get(s.URL)
			require.NoError(t, err)
			resp.Body.Close()
			synctest.Wait() // the handler has returned
			require.Equal(t, bare, watched, "HTTP/%d", i+1)
			require.Equal(t, []throttlehttp.Response{{Status: 200}}, seen.all(), "HTTP/%d", i+1)
		})
	}
}

// TestResponseRecorder_wrapsAnyWriter checks ResponseWriters of other middleware, which
// implement fewer interfaces.
func TestResponseRecorder_wrapsAnyWriter(t *testing.T) {
	rec := httptest.NewRecorder()
	type (
		plainKey struct{ http.ResponseWriter }
		flusher  struct{ plainFlusher }
		hijacker struct {
			plainFlusher
			hijackableWriter
		}
	)
	for name, tt := range map[string]struct {
		w    http.ResponseWriter
		want []string
	}{
		"none":    {plainKey{rec}, []string{"string"}},
		"flushes": {flusher{plainFlusher{plainKey{rec}}}, []string{"flush", "string"}},
		"hijacks": {hijacker{plainFlusher{plainKey{rec}}, hijackableWriter{}}, []string{"flush", "hijack", "string"}},
	} {
		var seen recordedResponses
		seen.middleware().Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			require.Equal(t, tt.want, memhttp.Capabilities(w), name)
			require.Equal(t, tt.w, w.(interface{ Unwrap() http.ResponseWriter }).Unwrap(), name)
			if h, ok := w.(http.Hijacker); ok {
				_, _, err := h.Hijack()
				require.Error(t, err)
			}
			w.WriteHeader(http.StatusAccepted)
		})).ServeHTTP(tt.w, httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, []throttlehttp.Response{{Status: 202}}, seen.all(), name)
	}
}

type plainFlusher struct{ http.ResponseWriter }

func (plainFlusher) Flush() {}

type hijackableWriter struct{}

func (hijackableWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, errors.New("not today")
}

func TestResponseRecorder_recordsUpgradesAndStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen recordedResponses
		mux := http.NewServeMux()
		mux.HandleFunc("/upgrade", func(w http.ResponseWriter, r *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			require.NoError(t, err)
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhello")
			conn.Close()
		})
		mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
			for range 3 {
				io.WriteString(w, "data: x\n\n")
				w.(http.Flusher).Flush()
				time.Sleep(time.Second)
			}
		})
		mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "x.txt", time.Time{}, strings.NewReader(strings.Repeat("x", 1<<20)))
		})
		s := memhttp.NewServer(seen.middleware().Handler(mux))
		defer s.Close()
		req, _ := http.NewRequest(http.MethodGet, s.URL+"/upgrade", nil)
		req.Header.Set("Connection", "upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := s.Client().Do(req)
		require.NoError(t, err)
		require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
		resp.Body.Close()

		start := time.Now()
		resp, err = s.Client().Get(s.URL + "/events")
		require.NoError(t, err)
		_, err = io.ReadFull(resp.Body, make([]byte, 9))
		require.NoError(t, err)
		require.Zero(t, time.Since(start), "the first event is not held back")
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		resp.Body.Close()

		resp, err = s.Client().Get(s.URL + "/file")
		require.NoError(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		require.NoError(t, err)
		resp.Body.Close()
		synctest.Wait()
		require.Equal(t, []throttlehttp.Response{{Status: 101}, {Status: 200, Bytes: 27}, {Status: 200, Bytes: 1 << 20}}, seen.all())
	})
}
