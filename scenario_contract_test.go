package heed

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

func dialer(l *memhttp.Listener) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }
}

var contractScenarios = []scenario{
	{number: 140, summary: "the request is not modified", run: func(t *testing.T) {
		body := &opaque{Reader: strings.NewReader("abc")}
		req := put(t, body, -1)
		req.Header.Set("X-A", "1")
		before, header := *req, req.Header.Clone()
		r := threeAttempts()
		r.AttemptHeader, r.AttemptTimeout, r.IdempotencyKey = "X-Attempt", time.Second, func() string { return "key" }
		_, err := (&Transport{Base: newScript(500), Retry: r}).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, before.Method, req.Method)
		require.Same(t, body, req.Body)
		require.Nil(t, req.GetBody)
		require.Equal(t, before.ContentLength, req.ContentLength)
		require.Same(t, before.URL, req.URL)
		require.Equal(t, before.Context(), req.Context())
		require.Equal(t, header, req.Header)
	}},
	{number: 141, summary: "the zero value works; a nil base is the default transport", run: func(t *testing.T) {
		tr := new(Transport)
		tr.resolve()
		require.Same(t, http.DefaultTransport, tr.resolved.base)
		own := tr.resolved.queue
		tr.resolve()
		require.Same(t, own, tr.resolved.queue)
	}},
	{number: 142, summary: "50 POSTs at once that all fail first: everybody gets their own answer", run: func(t *testing.T) {
		var seen sync.Map
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
			b, _ := io.ReadAll(r.Body)
			if _, again := seen.LoadOrStore(string(b), true); !again {
				w.Header().Set("Retry-After", "1")
				w.WriteHeader(503)
			}
			w.Write(b)
		})
		defer s.close()
		c := NewClient(&Transport{Base: s.base})
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				body := strings.Repeat(fmt.Sprint(i, ","), 1000)
				var r io.Reader = strings.NewReader(body)
				if i%2 == 0 {
					r = &opaque{Reader: r}
				}
				resp, err := c.Post(s.URL, "text/plain", r)
				if err != nil || resp.StatusCode != 200 {
					t.Error(i, err, resp)
					return
				}
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if string(got) != body || err != nil {
					t.Error(i, "got another body", err)
				}
			})
		}
		wg.Wait()
	}},
	{number: 143, summary: "the same request may be sent again after the answer", run: func(t *testing.T) {
		s := newScript(500, redirectWith(307), 200)
		tr := &Transport{Base: s, Retry: threeAttempts()}
		req := request(t, "GET", "")
		for _, status := range []int{307, 200} {
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, status, resp.StatusCode)
		}
	}},
	{number: 144, summary: "trailers of the final answer", run: func(t *testing.T) {
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Trailer", "X-N")
			w.WriteHeader(map[int64]int{1: 503, 2: 200}[n])
			io.WriteString(w, "body")
			w.Header().Set("X-N", fmt.Sprint(n))
		})
		defer s.close()
		for _, limiter := range []throttle.Limiter{nil, &concurrencyLimit{max: 1}} {
			s.requests.Store(0)
			resp, err := get(t, &Transport{Base: s.base, Limiter: limiter})
			require.NoError(t, err)
			require.Equal(t, "body", text(t, resp))
			require.Equal(t, "2", resp.Trailer.Get("X-N"))
		}
	}},
	{number: 145, summary: "103 early hints are no answers", run: func(t *testing.T) {
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.WriteHeader(103)
			w.WriteHeader(map[int64]int{1: 503, 2: 200}[n])
		})
		defer s.close()
		var hints int
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, _ textproto.MIMEHeader) error { hints++; return nil },
		})
		resp, err := (&Transport{Base: s.base}).RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
		require.Equal(t, 2, hints)
	}},
	{number: 146, summary: "101: the body is a connection that can be written to", run: func(t *testing.T) {
		s := newCountingServer(t, func(w http.ResponseWriter, r *http.Request, n int64) {
			c, rw, _ := w.(http.Hijacker).Hijack()
			defer c.Close()
			rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			rw.Flush()
			line, _ := rw.ReadString('\n')
			io.WriteString(c, "echo "+line)
		})
		defer s.close()
		req := request(t, "GET", "")
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		l := &concurrencyLimit{max: 1}
		resp, err := (&Transport{Base: s.base, Limiter: l, Retry: &RetryPolicy{AttemptTimeout: time.Second}}).RoundTrip(req)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		conn := resp.Body.(io.ReadWriteCloser)
		_, err = io.WriteString(conn, "hello\n")
		require.NoError(t, err)
		require.Equal(t, "echo hello\n", text(t, resp))
		require.Zero(t, l.held())
	}},
	{number: 147, summary: "a slow body after early headers, hedged", reason: "hedging is out of scope, see doc.go; a slow body under retries is 116"},
	{number: 148, summary: "hedging", reason: "out of scope, see doc.go"},
	{number: 149, summary: "nothing is added unless it is asked for", run: func(t *testing.T) {
		s := newScript(500)
		_, err := send(t, s, "GET")
		require.NoError(t, err)
		for _, got := range s.got {
			require.Empty(t, got.header)
		}
		s = newScript(response{409, "", nil}, 500, 200)
		r := threeAttempts()
		r.IdempotencyKey = func() string { return "key" }
		_, err = (&Transport{Base: s, Retry: r}).RoundTrip(request(t, "POST", "x"))
		require.NoError(t, err)
		require.Equal(t, 3, s.sent())
		for _, got := range s.got {
			require.Equal(t, http.Header{"Idempotency-Key": {"key"}}, got.header)
		}
	}},
}
