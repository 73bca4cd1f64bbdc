package throttlehttp_test

import (
	"bufio"
	"context"
	"io"
	"log"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// A grantCounter is a limiter that grants all claims and counts how its grants end.
type grantCounter struct {
	granted, cancelled int
	ended              []throttle.Outcome
	canceledContext    bool // Report was called with a canceled context
}

func (l *grantCounter) Reserve(context.Context, throttle.Claim) (throttle.Decision, error) {
	l.granted++
	return throttle.Decision{OK: true, Limit: 1}, nil
}

func (l *grantCounter) Report(ctx context.Context, _ throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	if f.State == throttle.Unused {
		l.cancelled++
		return
	}
	l.ended, l.canceledContext = append(l.ended, f.Outcome), l.canceledContext || ctx.Err() != nil
}

// Traits implements throttle.Limiter.
func (*grantCounter) Traits() throttle.Traits { return throttle.Traits{EndsAtResponse: true} }

// servers returns how a test in bubbles of synctest starts a server: with HTTP/1 and HTTP/2. The
// HTTP/2 server of Go 1.25 shares channels between bubbles, so it is left out there.
func servers() []func(*http.Server) *memhttp.Server {
	if strings.HasPrefix(runtime.Version(), "go1.25") {
		return []func(*http.Server) *memhttp.Server{memhttp.Start}
	}
	return []func(*http.Server) *memhttp.Server{memhttp.Start, startHTTP2}
}

// TestMiddleware_endsEveryGrantOnce checks that the grant of a request ends exactly once,
// however the request ends.
func TestMiddleware_endsEveryGrantOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		handle func(http.ResponseWriter, *http.Request)
		want   throttle.Outcome
	}{
		"returns": {func(w http.ResponseWriter, r *http.Request) {}, throttle.Accepted},
		"panics":  {func(w http.ResponseWriter, r *http.Request) { panic("boom") }, throttle.Failed},
		"aborts": {func(w http.ResponseWriter, r *http.Request) {
			io.WriteString(w, "half of")
			panic(http.ErrAbortHandler)
		}, throttle.Failed},
		"hijacks": {func(w http.ResponseWriter, r *http.Request) {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil { // HTTP/2 does not support it
				conn.Close()
			}
		}, throttle.Accepted},
		"client leaves": {func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, throttle.Accepted},
	} {
		for _, start := range servers() {
			synctest.Test(t, func(t *testing.T) {
				l := new(grantCounter)
				m := &throttlehttp.Middleware{Limiter: l}
				s := start(&http.Server{Handler: m.Handler(http.HandlerFunc(tt.handle)), ErrorLog: discardLogger})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				req, _ := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
				if resp, err := s.Client().Do(req); err == nil {
					_, _ = bufio.NewReader(resp.Body).ReadString('\n')
					resp.Body.Close()
				}
				s.Close()
				if l.granted > 1 { // HTTP/2 retries requests that have not been processed
					require.Len(t, l.ended, l.granted, name)
					l.ended = l.ended[:1]
				}
				require.Equal(t, []throttle.Outcome{tt.want}, l.ended, name)
				require.Zero(t, l.cancelled, name)
				require.False(t, l.canceledContext, "%s: told too late", name)
			})
		}
	}
}

func TestMiddleware_rejectionByOneLimitReturnsTheOthers(t *testing.T) {
	first, last := new(grantCounter), new(grantCounter)
	m := &throttlehttp.Middleware{Limiter: first, Limits: func(_ *http.Request, t *queue.Ticket) error {
		t.Add(throttle.Demand{Limiter: fixedDecision{}})
		t.Add(throttle.Demand{Limiter: last})
		return nil
	}}
	require.Equal(t, http.StatusTooManyRequests, serveGet(m.Handler(ok)).StatusCode)
	require.Equal(t, grantCounter{granted: 1, cancelled: 1}, *first)
	require.Equal(t, grantCounter{}, *last, "not even asked")
}

// TestMiddleware_endsTheGrantWhenAHookPanics checks that the grant ends if a hook panics.
func TestMiddleware_endsTheGrantWhenAHookPanics(t *testing.T) {
	l := new(grantCounter)
	m := &throttlehttp.Middleware{Limiter: l, Trace: &throttlehttp.Trace{
		Decided: func(*http.Request, throttle.Decision) { panic("boom") },
	}}
	require.Panics(t, func() { serveGet(m.Handler(ok)) })
	require.Equal(t, []throttle.Outcome{throttle.Failed}, l.ended)
}

var discardLogger = log.New(io.Discard, "", 0)

func startHTTP2(config *http.Server) *memhttp.Server {
	config.Protocols = new(http.Protocols)
	config.Protocols.SetUnencryptedHTTP2(true)
	return memhttp.Start(config)
}

func TestMiddleware_preservesWriterInterfaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &throttlehttp.Middleware{Limiter: throttle.NewTokenBucket(throttle.PerHour(9))}
		s := memhttp.NewServer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, canReadFrom := w.(io.ReaderFrom)
			rc := http.NewResponseController(w)
			if !canReadFrom || rc.SetWriteDeadline(time.Now().Add(time.Hour)) != nil || rc.Flush() != nil {
				panic("the writer has lost something")
			}
			conn, _, err := rc.Hijack()
			if err != nil {
				panic(err)
			}
			conn.Close()
		})))
		defer s.Close()
		resp, err := s.Client().Get(s.URL)
		require.NoError(t, err)
		require.Equal(t, "200 9/8/400", limitSummary(resp))
		resp.Body.Close()
	})
}
