package heed

import (
	"bytes"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/internal/memhttp"
	"github.com/stretchr/testify/require"
)

var discardLog = log.New(io.Discard, "", 0)

// A countingServer is an in-memory net/http server that counts connections and requests.
type countingServer struct {
	*memhttp.Server
	base     *http.Transport
	requests atomic.Int64
	conns    atomic.Int64
	idle     sync.Map // keys are net.Conn
}

// newCountingServer returns a server whose handler gets the number of the request,
// starting at 1.
func newCountingServer(t *testing.T, h func(w http.ResponseWriter, r *http.Request, n int64)) *countingServer {
	t.Helper()
	s := &countingServer{}
	s.Server = memhttp.Start(&http.Server{
		ErrorLog:  discardLog,
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h(w, r, s.requests.Add(1)) }),
		ConnState: s.trackState,
	})
	s.base = s.Transport()
	return s
}

func (s *countingServer) trackState(c net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		s.conns.Add(1)
	case http.StateIdle:
		s.idle.Store(c, nil)
	default:
		s.idle.Delete(c)
	}
}

// closeIdle closes the idle connections, as a server does after a timeout.
func (s *countingServer) closeIdle() {
	synctest.Wait()
	s.idle.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
	synctest.Wait()
}

func (s *countingServer) close() {
	s.base.CloseIdleConnections()
	s.Close()
	time.Sleep(time.Second) // net/http may wait half a second before it closes a connection
}

var drainScenarios = []scenario{
	{number: 122, summary: "the body of a discarded answer is drained: one connection", run: expectConns(1, 100)},
	{number: 123, summary: "up to 64 KiB, and no more than that", run: func(t *testing.T) {
		expectConns(1, 20<<10)(t)
		expectConns(3, 1<<20)(t)
	}},
	{number: 124, summary: "an endless or hanging body is let go soon", run: func(t *testing.T) {
		for _, body := range []func(w http.ResponseWriter, r *http.Request){
			func(w http.ResponseWriter, r *http.Request) {
				for {
					if _, err := w.Write(make([]byte, 1024)); err != nil {
						return
					}
				}
			},
			func(w http.ResponseWriter, r *http.Request) {
				io.WriteString(w, "x")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			},
			func(w http.ResponseWriter, r *http.Request) {
				for r.Context().Err() == nil {
					io.WriteString(w, "x")
					w.(http.Flusher).Flush()
					time.Sleep(20 * time.Millisecond)
				}
			},
		} {
			s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
				if n < 3 {
					w.WriteHeader(503)
					body(w, r)
					return
				}
				io.WriteString(w, "good")
			})
			start := time.Now()
			resp, err := get(t, &Transport{Base: s.base, Retry: threeAttempts()})
			require.NoError(t, err)
			require.Equal(t, "good", text(t, resp))
			require.LessOrEqual(t, time.Since(start), 2*time.Second+2*drainTimeout)
			s.close()
		}
	}},
	{number: 125, summary: "a truncated 503 does not matter, a truncated 200 is the reader's", run: func(t *testing.T) {
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Content-Length", "100")
			if n == 1 {
				w.WriteHeader(503)
			}
			io.WriteString(w, "short")
		})
		defer s.close()
		resp, err := get(t, &Transport{Base: s.base, Retry: threeAttempts()})
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		_, err = io.ReadAll(resp.Body)
		resp.Body.Close()
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.EqualValues(t, 2, s.requests.Load())
	}},
	{number: 126, summary: "a hook sees every answer; the body of the last is unread", run: func(t *testing.T) {
		var seen []int
		tr := &Transport{Base: newScript(503, 429, 200), Retry: threeAttempts(), Trace: &Trace{AttemptDone: func(_ *http.Request, s AttemptInfo) {
			seen = append(seen, s.Response.StatusCode)
		}}}
		resp, err := get(t, tr)
		require.NoError(t, err)
		require.Equal(t, "answer 3", text(t, resp))
		require.Equal(t, []int{503, 429, 200}, seen)
	}},
	{number: 127, summary: "a hook sees each attempt as it will be sent", run: func(t *testing.T) {
		var numbers []int
		var headers []string
		r := threeAttempts()
		r.AttemptHeader = "X-Attempt"
		tr := &Transport{Base: newScript(503), Retry: r, Trace: &Trace{AttemptStart: func(req *http.Request, s AttemptInfo) {
			numbers, headers = append(numbers, s.Attempt), append(headers, req.Header.Get("X-Attempt"))
		}}}
		_, err := get(t, tr)
		require.NoError(t, err)
		require.Equal(t, []int{1, 2, 3}, numbers)
		require.Equal(t, []string{"", "2", "3"}, headers)
	}},
	{number: 128, summary: "the core never logs; hooks that are nil are off", run: func(t *testing.T) {
		var none *Trace
		for _, trace := range []*Trace{nil, none, {}} {
			_, err := get(t, &Transport{Base: newScript(500, errBroken, 429, 404), Trace: trace})
			require.NoError(t, err)
			_, err = get(t, &Transport{Base: newScript(errBroken), Trace: trace})
			require.Error(t, err)
		}
	}},
	{number: 129, summary: "a hook before each attempt may change headers and the query, and end the call", run: func(t *testing.T) {
		s := newScript(500)
		r := threeAttempts()
		r.BeforeSend = func(req *http.Request, attempt int) error {
			req.Header.Set("X-Signed", strings.Repeat("s", attempt))
			req.URL.RawQuery = "signature=" + strconv.Itoa(attempt)
			require.Equal(t, attempt-1, AttemptFrom(req.Context()))
			return nil
		}
		req := request(t, "GET", "")
		_, err := (&Transport{Base: s, Retry: r}).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, []string{"s", "ss", "sss"}, []string{s.got[0].header.Get("X-Signed"), s.got[1].header.Get("X-Signed"), s.got[2].header.Get("X-Signed")})
		require.Empty(t, req.Header)
		require.Empty(t, req.URL.RawQuery)

		r.BeforeSend = func(*http.Request, int) error { return errBroken }
		s = newScript(200)
		_, err = (&Transport{Base: s, Retry: r}).RoundTrip(request(t, "PUT", "x"))
		require.ErrorIs(t, err, errBroken)
		require.Zero(t, s.sent())
	}},
	{number: 130, summary: "an idle connection that the server closed: attempts are counted at the server", run: func(t *testing.T) {
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {})
		defer s.close()
		tr := &Transport{Base: s.base}
		for _, method := range []string{"GET", "GET", "POST"} {
			resp, err := tr.RoundTrip(request(t, method, ""))
			require.NoError(t, err)
			resp.Body.Close()
			s.closeIdle()
		}
		require.EqualValues(t, 3, s.requests.Load())
	}},
	{number: 131, summary: "a connection reset after the request was sent: only what is idempotent", run: func(t *testing.T) {
		for method, want := range map[string]int64{"GET": 2, "POST": 1} {
			s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
				if n == 1 {
					c, _, _ := w.(http.Hijacker).Hijack()
					c.(*memhttp.Conn).SetLinger(0)
					c.Close()
				}
			})
			resp, err := (&Transport{Base: s.base}).RoundTrip(request(t, method, ""))
			if want == 1 {
				require.True(t, errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF), err)
				require.ErrorIs(t, err, ErrNotIdempotent)
			} else {
				require.NoError(t, err)
				resp.Body.Close()
			}
			require.Equal(t, want, s.requests.Load())
			s.close()
		}
	}},
	{number: 132, summary: "a status line that is none: perhaps sent", run: func(t *testing.T) {
		for _, line := range []string{"HTTP/1.1 2", "nonsense\r\n\r\n"} {
			s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
				if n == 1 {
					c, _, _ := w.(http.Hijacker).Hijack()
					io.WriteString(c, line)
					c.Close()
				}
			})
			resp, err := get(t, &Transport{Base: s.base})
			require.NoError(t, err)
			resp.Body.Close()
			require.EqualValues(t, 2, s.requests.Load())
			s.close()
		}
	}},
	{number: 133, summary: "CloseIdleConnections reaches the base", run: func(t *testing.T) {
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {})
		defer s.close()
		c := NewClient(&Transport{Base: s.base})
		for range 3 {
			resp, err := c.Get(s.URL)
			require.NoError(t, err)
			resp.Body.Close()
			c.CloseIdleConnections()
		}
		require.EqualValues(t, 3, s.conns.Load())
	}},
}

// expectConns checks the number of connections of three attempts whose responses have
// size bytes.
func expectConns(conns int64, size int) func(*testing.T) {
	return func(t *testing.T) {
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.WriteHeader(503)
			w.Write(bytes.Repeat([]byte("x"), size))
		})
		defer s.close()
		resp, err := get(t, &Transport{Base: s.base, Retry: threeAttempts()})
		require.NoError(t, err)
		require.Len(t, text(t, resp), size)
		require.EqualValues(t, 3, s.requests.Load())
		require.Equal(t, conns, s.conns.Load())
	}
}
