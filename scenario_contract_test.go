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
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/internal/memhttp"
	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

func dialer(l *memhttp.Listener) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return l.Dial(ctx) }
}

var contract = []scenario{
	{number: 140, what: "the request is not modified", run: func(t *testing.T) {
		body := &opaque{Reader: strings.NewReader("abc")}
		req := put(t, body, -1)
		req.Header.Set("X-A", "1")
		before, header := *req, req.Header.Clone()
		r := three()
		r.AttemptHeader, r.PerAttempt, r.NewKey = "X-Attempt", time.Second, func() string { return "key" }
		_, err := (&Transport{Base: plays(500), Retry: r}).RoundTrip(req)
		require.NoError(t, err)
		require.Equal(t, before.Method, req.Method)
		require.Same(t, body, req.Body)
		require.Nil(t, req.GetBody)
		require.Equal(t, before.ContentLength, req.ContentLength)
		require.Same(t, before.URL, req.URL)
		require.Equal(t, before.Context(), req.Context())
		require.Equal(t, header, req.Header)
	}},
	{number: 141, what: "the zero value works; a nil base is the default transport", run: func(t *testing.T) {
		tr := new(Transport)
		tr.ready()
		require.Same(t, http.DefaultTransport, tr.own.base)
		own := tr.own.waiter
		tr.ready()
		require.Same(t, own, tr.own.waiter)
	}},
	{number: 142, what: "50 POSTs at once that all fail first: everybody gets their own answer", run: func(t *testing.T) {
		var seen sync.Map
		s := newSite(t, func(w http.ResponseWriter, r *http.Request, _ int64) {
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
	{number: 143, what: "the same request may be sent again after the answer", run: func(t *testing.T) {
		s := plays(500, to(307), 200)
		tr := &Transport{Base: s, Retry: three()}
		req := request(t, "GET", "")
		for _, status := range []int{307, 200} {
			resp, err := tr.RoundTrip(req)
			require.NoError(t, err)
			require.Equal(t, status, resp.StatusCode)
		}
	}},
	{number: 144, what: "trailers of the final answer", run: func(t *testing.T) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request, n int64) {
			w.Header().Set("Trailer", "X-N")
			w.WriteHeader(map[int64]int{1: 503, 2: 200}[n])
			io.WriteString(w, "body")
			w.Header().Set("X-N", fmt.Sprint(n))
		})
		defer s.close()
		for _, limiter := range []throttle.Limiter{nil, &inflight{max: 1}} {
			s.requests.Store(0)
			resp, err := get(t, &Transport{Base: s.base, Limiter: limiter})
			require.NoError(t, err)
			require.Equal(t, "body", text(t, resp))
			require.Equal(t, "2", resp.Trailer.Get("X-N"))
		}
	}},
	{number: 145, what: "103 early hints are no answers", run: func(t *testing.T) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request, n int64) {
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
	{number: 146, what: "101: the body is a connection that can be written to", run: func(t *testing.T) {
		s := newSite(t, func(w http.ResponseWriter, r *http.Request, n int64) {
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
		l := &inflight{max: 1}
		resp, err := (&Transport{Base: s.base, Limiter: l, Retry: &Retry{PerAttempt: time.Second}}).RoundTrip(req)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		conn := resp.Body.(io.ReadWriteCloser)
		_, err = io.WriteString(conn, "hello\n")
		require.NoError(t, err)
		require.Equal(t, "echo hello\n", text(t, resp))
		require.Zero(t, l.held())
	}},
	{number: 147, what: "a slow body after early headers, hedged", says: "hedging is out of scope, see doc.go; a slow body under retries is 116"},
	{number: 148, what: "hedging", says: "out of scope, see doc.go"},
	{number: 149, what: "nothing is added unless it is asked for", run: func(t *testing.T) {
		s := plays(500)
		_, err := ask(t, s, "GET")
		require.NoError(t, err)
		for _, got := range s.got {
			require.Empty(t, got.header)
		}
		s = plays(answer{409, "", nil}, 500, 200)
		r := three()
		r.NewKey = func() string { return "key" }
		_, err = (&Transport{Base: s, Retry: r}).RoundTrip(request(t, "POST", "x"))
		require.NoError(t, err)
		require.Equal(t, 3, s.sent())
		for _, got := range s.got {
			require.Equal(t, http.Header{"Idempotency-Key": {"key"}}, got.header)
		}
	}},
}

// inflight is a limit on what is in flight, which needs to know when it ends.
type inflight struct {
	mu   sync.Mutex
	max  int
	n    int
	seen []throttle.Feedback
}

func (l *inflight) Reserve(_ context.Context, c throttle.Claim) (throttle.Decision, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := throttle.Decision{OK: l.n < l.max, Policy: "in flight", At: c.Now}
	if d.OK && !c.DryRun {
		l.n++
	}
	return d, nil
}

func (l *inflight) Cancel(context.Context, throttle.Claim, throttle.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n--
}

func (l *inflight) Observe(_ context.Context, _ throttle.Claim, _ throttle.Decision, f throttle.Feedback) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen = append(l.seen, f); !f.More {
		l.n--
	}
}

func (l *inflight) held() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.n
}

var limits = []scenario{
	{number: 150, what: "an open breaker: nothing sent", run: func(t *testing.T) {
		s := plays(200)
		l := &inflight{max: 1}
		open := &breaker{err: errBroken}
		_, err := get(t, &Transport{Base: s, Limiter: l, Breaker: func(*http.Request) Breaker { return open }})
		require.ErrorIs(t, err, errBroken)
		require.Zero(t, s.sent())
		require.Zero(t, l.held())

		shut := &breaker{}
		s = plays(500, refused, 429, 200)
		_, err = get(t, &Transport{Base: s, Breaker: func(*http.Request) Breaker { return shut }})
		require.NoError(t, err)
		require.Equal(t, []bool{false, false, true, true}, shut.good)
	}},
	{number: 151, what: "a full line: its error, nothing sent", run: func(t *testing.T) {
		s := plays(200)
		w := &throttle.Waiter{MaxLine: 1}
		l := &inflight{max: 0}
		tr := &Transport{Base: s, Limiter: l, Waiter: w}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
			done <- err
		}()
		synctest.Wait()
		_, err := get(t, tr)
		require.ErrorIs(t, err, throttle.ErrRefused)
		var full *throttle.LineError
		require.ErrorAs(t, err, &full)
		cancel()
		require.Equal(t, context.Canceled, <-done)
		require.Zero(t, s.sent())
	}},
	{number: 152, what: "retries wait for the limit; cancelled in line: the context's error", run: func(t *testing.T) {
		s := plays(500, 200)
		tr := &Transport{Base: s, Retry: three(), Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 1, Per: time.Minute}, nil)}
		resp, err := get(t, tr)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{time.Minute}, s.gaps())
		info, ok := InfoFrom(resp)
		require.True(t, ok)
		require.Equal(t, 59*time.Second, info.InLine)
		require.Equal(t, time.Second, info.Paused)

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = tr.RoundTrip(request(t, "GET", "").WithContext(ctx))
		require.Equal(t, context.Canceled, err)
		require.Equal(t, 2, s.sent())
	}},
	{number: 153, what: "a longer wait than allowed is refused at once and takes nothing", run: func(t *testing.T) {
		s := plays(200)
		tr := &Transport{Base: s, Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 5, Per: time.Second, Burst: 1}, nil)}
		_, err := get(t, tr)
		require.NoError(t, err)
		_, err = tr.RoundTrip(request(t, "GET", "").WithContext(With(t.Context(), Request{MaxWait: 100 * time.Millisecond})))
		require.ErrorIs(t, err, throttle.ErrRefused)
		require.ErrorIs(t, err, ErrMaxWait)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.Zero(t, time.Since(s.start))
		_, err = get(t, tr)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{200 * time.Millisecond}, s.gaps())
	}},
	{number: 154, what: "one per 100 ms: waits of 0, 100, 200", run: func(t *testing.T) {
		s := plays(200)
		tr := &Transport{Base: s, Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 10, Per: time.Second, Burst: 1}, nil)}
		for range 3 {
			_, err := get(t, tr)
			require.NoError(t, err)
		}
		require.Equal(t, []time.Duration{100 * time.Millisecond, 100 * time.Millisecond}, s.gaps())
	}},
	{number: 155, what: "smooth, one per 500 ms: several at once, now and then", run: func(t *testing.T) {
		each := throttle.Refill{Limit: throttle.Limit{Count: 1, Per: 500 * time.Millisecond}}
		batches(t, throttle.NewRefillBucket(each, nil), []batch{{0, 7, 3000}, {800, 3, 3700}, {2300, 1, 2700}, {3500, 3, 3000}, {9100, 3, 900}, {11000, 1, 0}})
	}},
	{number: 156, what: "smooth: grants are aligned to multiples of the interval", run: func(t *testing.T) {
		each := throttle.Refill{Limit: throttle.Limit{Count: 1, Per: 500 * time.Millisecond}}
		batches(t, throttle.NewRefillBucket(each, nil), []batch{{750, 1, 0}, {751, 1, 249}})
	}},
	{number: 157, what: "bursty: so many per period, several at once", run: func(t *testing.T) {
		batches(t, throttle.NewPermitsPerPeriod(2, time.Second, nil), []batch{{0, 7, 3000}, {800, 3, 3200}, {2300, 1, 2700}, {3500, 3, 2500}, {7000, 1, 0}})
		batches(t, throttle.NewPermitsPerPeriod(5, time.Second, nil), []batch{{300, 3, 0}, {1550, 10, 450}, {2210, 2, 790}})
	}},
	{number: 158, what: "several units at once wait as long as the last of single ones", run: func(t *testing.T) {
		s := plays(200)
		tr := &Transport{Base: s, Limiter: throttle.NewTokenBucket(throttle.Limit{Count: 10, Per: time.Second, Burst: 7}, nil)}
		for range 7 {
			_, err := get(t, tr)
			require.NoError(t, err)
		}
		_, err := tr.RoundTrip(request(t, "GET", "").WithContext(With(t.Context(), Request{Cost: 7})))
		require.NoError(t, err)
		require.Equal(t, 700*time.Millisecond, s.gaps()[6])
	}},
}

// A batch is several requests at once, at some time, and when the last of them is
// sent after that. Times are in milliseconds.
type batch struct{ at, n, wait int }

func batches(t *testing.T, l throttle.Limiter, list []batch) {
	t.Helper()
	tr := &Transport{Base: plays(200), Limiter: l, Quota: &quota.Tracker{Start: -1}}
	start := time.Now()
	var all sync.WaitGroup
	for _, b := range list {
		all.Go(func() {
			time.Sleep(time.Duration(b.at) * time.Millisecond)
			var wg sync.WaitGroup
			for range b.n {
				wg.Go(func() { get(t, tr) })
			}
			wg.Wait()
			if got := time.Since(start); got != time.Duration(b.at+b.wait)*time.Millisecond {
				t.Errorf("%+v: sent at %v", b, got)
			}
		})
	}
	all.Wait()
}

// breaker is a Breaker that is open if err is not nil.
type breaker struct {
	err  error
	good []bool
}

func (b *breaker) Allow() (func(error), error) {
	return func(err error) { b.good = append(b.good, err == nil) }, b.err
}
