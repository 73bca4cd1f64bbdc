package throttlehttp_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// bySender returns a rule of so many requests per hour for each sender.
func bySender(perHour int64) throttlehttp.Rule {
	return throttlehttp.Rule{Limiter: keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(perHour)}), Key: senderKey}
}

// TestQueue_delayIsNotLongerThanAMinuteByDefault checks the default of MaxWait with a limit that states
// its wait and with one that does not.
func TestQueue_delayIsNotLongerThanAMinuteByDefault(t *testing.T) {
	for name, tt := range map[string]struct {
		limiter throttle.Limiter
		queue   *queue.Queue
		want    []string
	}{
		"stated":     {throttle.NewTokenBucket(throttle.PerHour(1)), &queue.Queue{}, []string{"a 200 at 0s", "b 429 at 0s"}},
		"not stated": {throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1}), &queue.Queue{}, []string{"b 429 at 1m0s", "a 200 at 3h0m0s"}},
		"MaxWait":    {throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1}), &queue.Queue{MaxWait: 2 * time.Minute}, []string{"b 429 at 2m0s", "a 200 at 3h0m0s"}},
		"no maximum": {throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1}), &queue.Queue{MaxWait: -1}, []string{"a 200 at 3h0m0s", "b 200 at 6h0m0s"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newRequestGroup(&throttlehttp.Middleware{Limiter: tt.limiter, Queue: tt.queue}, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				if name != "stated" {
					time.Sleep(3 * time.Hour)
				}
			}))
			c.send(t.Context(), "a")
			c.send(t.Context(), "b")
			require.Equal(t, tt.want, c.wait(), name)
		})
	}
}

// TestQueue_oneKeyTakesSixtyFourPlaces checks how many of 200 requests of one client wait, and that
// another client waits beside them. (Review M5: one client took all 1,024 places.)
func TestQueue_oneKeyTakesSixtyFourPlaces(t *testing.T) {
	for name, tt := range map[string]struct {
		rules []throttlehttp.Rule
		queue *queue.Queue
		name  string
		want  int
	}{
		"default":       {[]throttlehttp.Rule{bySender(1)}, &queue.Queue{MaxWait: -1}, "ann", 64},
		"second key":    {[]throttlehttp.Rule{bySender(1e6), bySender(1)}, &queue.Queue{MaxWait: -1}, "ann", 64},
		"without a key": {[]throttlehttp.Rule{bySender(1)}, &queue.Queue{MaxWait: -1}, "", 64},
		"MaxPerClass":   {[]throttlehttp.Rule{bySender(1)}, &queue.Queue{MaxWait: -1, MaxPerClass: 150}, "ann", 150},
		"no maximum":    {[]throttlehttp.Rule{bySender(1)}, &queue.Queue{MaxWait: -1, MaxPerClass: -1}, "ann", 199},
		"shared by all": {[]throttlehttp.Rule{{Limiter: perHour(1)}}, &queue.Queue{MaxWait: -1}, "ann", 199},
		"Limits":        {nil, &queue.Queue{MaxWait: -1}, "ann", 64},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &throttlehttp.Middleware{Rules: tt.rules, Queue: tt.queue}
			if tt.rules == nil {
				l := keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(1)})
				m.Limits = func(r *http.Request, t *queue.Ticket) error {
					t.Add(throttle.Demand{Limiter: l, Key: r.Header.Get("User")})
					return nil
				}
			}
			c := newRequestGroup(m, ok)
			for range 2 { // the places of the first time are free again
				ctx, leave := context.WithCancel(t.Context())
				for range 200 {
					c.send(ctx, tt.name)
				}
				require.Equal(t, tt.want, tt.queue.Snapshot().Waiting, name)
				c.send(ctx, "bob")
				c.send(ctx, "bob")
				require.Greater(t, tt.queue.Snapshot().Waiting, tt.want, name)
				leave()
				c.wait()
				time.Sleep(10000 * time.Hour)
			}
		})
	}
}

// countWaitingConns sends a request of each client over a connection of its own, closes the
// connections, and returns how many requests wait before and after that.
func countWaitingConns(t *testing.T, clients int, request string) (before, after int) {
	q := &queue.Queue{MaxWait: time.Hour, MaxPerClass: -1}
	m := &throttlehttp.Middleware{Limiter: throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 1}), Queue: q}
	s := memhttp.NewServer(m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(24 * time.Hour) })))
	defer s.Close()
	dial := s.Transport().DialContext
	conns := make([]net.Conn, clients+1)
	var err error
	for i := range conns {
		conns[i], err = dial(t.Context(), "tcp", "")
		require.NoError(t, err)
		defer conns[i].Close()
		text := "GET / HTTP/1.1\r\nHost: x\r\n\r\n" // takes the limit
		if i > 0 {
			text = request
		}
		_, err = io.WriteString(conns[i], text)
		require.NoError(t, err)
		synctest.Wait()
	}
	before = q.Snapshot().Waiting
	for _, c := range conns[1:] {
		c.Close()
	}
	synctest.Wait()
	after = q.Snapshot().Waiting
	require.NoError(t, q.Close())
	return before, after
}

// TestQueue_closedConnectionsLeave checks which requests leave the queue when their connection is
// closed. (Review M5: those whose body had not been read stayed.)
func TestQueue_closedConnectionsLeave(t *testing.T) {
	post := "POST / HTTP/1.1\r\nHost: x\r\n"
	for name, tt := range map[string]struct {
		request       string
		before, after int
	}{
		"no body":               {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 9, 0},
		"body":                  {post + "Content-Length: 4\r\n\r\nbody", 9, 0},
		"longest buffered body": {post + "Content-Length: 65536\r\n\r\n" + strings.Repeat("x", 65536), 9, 0},
		"body that never comes": {post + "Content-Length: 4\r\n\r\nbo", 0, 0}, // has no place
		"long body":             {post + "Content-Length: 65537\r\n\r\nbody", 9, 9},
		"chunked body":          {post + "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n", 9, 9},
		"body on demand":        {post + "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n", 9, 9},
	} {
		synctest.Test(t, func(t *testing.T) {
			before, after := countWaitingConns(t, 9, tt.request)
			require.Equal(t, [2]int{tt.before, tt.after}, [2]int{before, after}, name)
		})
	}
}

// TestQueue_bodyIsTheSameAfterAWait checks that the handler reads and closes the body of a request that
// has waited.
func TestQueue_bodyIsTheSameAfterAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &throttlehttp.Middleware{Limiter: onePerSecond(), Queue: new(queue.Queue)}
		s := memhttp.NewServer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			fmt.Fprint(w, string(body), err, r.Body.Close(), r.ContentLength)
		})))
		defer s.Close()
		start := time.Now()
		for range 2 {
			resp, err := s.Client().Post(s.URL, "text/plain", strings.NewReader("hello"))
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, "hello<nil> <nil> 5", string(body))
		}
		require.Equal(t, time.Second, time.Since(start))
	})
}

// TestQueue_unreadableBodyIsNotServed checks that a request whose client leaves before its body is
// complete is not served without a limit.
func TestQueue_unreadableBodyIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var failed []string
		m := &throttlehttp.Middleware{Limiter: onePerSecond(), Queue: new(queue.Queue), Trace: &throttlehttp.Trace{
			Failed: func(_ *http.Request, err error, open bool) {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, fmt.Sprint(err, " ", open))
			},
		}}
		s := memhttp.NewServer(m.Handler(ok))
		defer s.Close()
		raw(t, s, "GET / HTTP/1.0\r\n\r\n")
		conn, err := s.Transport().DialContext(t.Context(), "tcp", "")
		require.NoError(t, err)
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbo")
		require.NoError(t, err)
		synctest.Wait()
		conn.Close()
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []string{"throttlehttp: the body of a waiting request cannot be read: unexpected EOF false"}, failed)
	})
}

// TestQueue_tooLongBodyIsNotServed checks that a client cannot pass the limit with a body that an outer
// handler limits.
func TestQueue_tooLongBodyIsNotServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := (&throttlehttp.Middleware{Limiter: onePerSecond(), Queue: new(queue.Queue)}).Handler(ok)
		limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = http.MaxBytesReader(w, r.Body, 3)
			h.ServeHTTP(w, r)
		})
		for _, want := range []int{200, 503} {
			w := httptest.NewRecorder()
			limited.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", strings.NewReader("body")))
			require.Equal(t, want, w.Code)
		}
	})
}
