package heedtest_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/heedtest"
	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// bucket returns a limit of n requests per second with a burst of n.
func bucket(n int64) *throttlehttp.Middleware {
	return &throttlehttp.Middleware{Limiter: throttle.NewTokenBucket(throttle.PerSecond(n))}
}

// countingRejected returns a limit of n requests in any window of length per that also counts
// rejected requests, as HAProxy does if it tracks a request before it denies it.
func countingRejected(n int64, per time.Duration) throttle.Limiter {
	return throttle.NewSlidingLog(throttle.SlidingLogConfig{Limit: throttle.Limit{Count: n, Per: per}, CountRejected: true})
}

// at sends a request after each of the delays since the start, and returns the statuses.
func at(t *testing.T, s *heedtest.Server, delays ...time.Duration) (statuses []int) {
	start, c := time.Now(), s.Client()
	for _, d := range delays {
		time.Sleep(time.Until(start.Add(d)))
		status, _, err := fetch(c, "GET", s.URL, "")
		require.NoError(t, err)
		statuses = append(statuses, status)
	}
	return statuses
}

func TestServer_limitsAPlainClient(t *testing.T) {
	s := &heedtest.Server{Limit: bucket(10)}
	inMemory(t, s, func(t *testing.T) {
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() { fetch(s.Client(), "GET", s.URL, "") })
		}
		all.Wait()
		count := map[int]int{}
		for _, a := range s.Requests() {
			count[a.Status]++
		}
		require.Equal(t, map[int]int{200: 10, 429: 20}, count)
		require.Empty(t, s.EarlyRetries(), "all were on their way when the first was rejected")
		require.Equal(t, 30, s.Conns())
	})
}

func TestServer_limitsOnASocket(t *testing.T) {
	s := &heedtest.Server{Limit: bucket(2)}
	s.Start()
	defer s.Close()
	c := s.Client()
	c.Timeout = 20 * time.Second // a hanging server must not block the test
	defer c.CloseIdleConnections()
	s.Limit.Limiter.(throttle.Adjustable).SetLimit(throttle.PerHour(2)) // so that a slow test gets no units back
	for _, want := range []int{200, 200, 429} {
		resp, err := c.Get(s.URL)
		require.NoError(t, err)
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		require.Equal(t, want, resp.StatusCode)
		require.Equal(t, "2", resp.Header.Get("X-RateLimit-Limit"))
	}
	require.Equal(t, 1, s.Conns())
}

func TestServer_rejectsEarlyRetries(t *testing.T) {
	const s1, ms = time.Second, time.Millisecond
	for name, tt := range map[string]struct {
		server   *heedtest.Server
		at       []time.Duration
		statuses []int
		early    []time.Duration
	}{
		"reported": {
			server:   &heedtest.Server{Respond: heedtest.Script(heedtest.Response{Status: 429, Header: http.Header{"Retry-After": {"3"}}})},
			at:       []time.Duration{0, 1 * s1, 2999 * ms, 3999 * ms}, // the last rejection stated a whole second
			statuses: []int{429, 429, 429, 200},
			early:    []time.Duration{2 * s1, 1 * ms},
		},
		"and set back": {
			server: &heedtest.Server{Penalty: 5 * s1,
				Respond: heedtest.Script(heedtest.Response{Status: 503, Header: http.Header{"Retry-After": {"3"}}})},
			at:       []time.Duration{0, 1 * s1, 3 * s1, 13 * s1},
			statuses: []int{503, 429, 429, 200},
			early:    []time.Duration{2 * s1, 5 * s1},
		},
		"a date, by the server's clock": {
			server: &heedtest.Server{Skew: time.Hour, Respond: heedtest.Script(heedtest.Response{Status: 429,
				Header: http.Header{"Retry-After": {"Sat, 01 Jan 2000 01:00:03 GMT"}}})}, // bubbles begin in the year 2000
			at:       []time.Duration{0, 2 * s1, 3 * s1},
			statuses: []int{429, 429, 200},
			early:    []time.Duration{1 * s1},
		},
		"not who was on the way": {
			server: &heedtest.Server{Grace: 20 * ms,
				Respond: heedtest.Script(heedtest.Response{Status: 429, Header: http.Header{"Retry-After": {"3"}}})},
			at:       []time.Duration{0, 20 * ms, 21 * ms},
			statuses: []int{429, 200, 429},
			early:    []time.Duration{2979 * ms},
		},
		"not after a good answer": {
			server:   &heedtest.Server{Respond: heedtest.Script(heedtest.Response{Header: http.Header{"Retry-After": {"3"}}})},
			at:       []time.Duration{0, 1 * s1},
			statuses: []int{200, 200},
		},
		"by the limit": {
			server:   &heedtest.Server{Limit: &throttlehttp.Middleware{Limiter: countingRejected(1, 4*s1)}},
			at:       []time.Duration{0, 1 * s1, 2 * s1, 5 * s1},
			statuses: []int{200, 429, 429, 200},
			early:    []time.Duration{3 * s1},
		},
	} {
		s := tt.server
		inMemory(t, s, func(t *testing.T) {
			require.Equal(t, tt.statuses, at(t, s, tt.at...), name)
			var early []time.Duration
			for _, a := range s.EarlyRetries() {
				early = append(early, a.EarlyBy)
			}
			require.Equal(t, tt.early, early, name)
		})
	}
}

// TestServer_statesTheRestRoundedUp checks the Retry-After of the rejection of an early
// request.
func TestServer_statesTheRestRoundedUp(t *testing.T) {
	for after, want := range map[time.Duration]string{
		time.Millisecond: "20", time.Second: "19", 1500 * time.Millisecond: "19", 8 * time.Second: "12", 20*time.Second - 1: "1",
	} {
		s := &heedtest.Server{Respond: heedtest.Script(heedtest.Response{Status: 429, Header: http.Header{"Retry-After": {"20"}}})}
		inMemory(t, s, func(t *testing.T) {
			require.Equal(t, []int{429}, at(t, s, 0))
			time.Sleep(after)
			resp, err := s.Client().Get(s.URL)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, want, resp.Header.Get("Retry-After"), "%v", after)
			require.Equal(t, 20*time.Second-after, s.EarlyRetries()[0].EarlyBy)
		})
	}
}

// TestServer_ignoresRejectionsWithoutAWait checks rejections that state no wait, or one in the
// past.
func TestServer_ignoresRejectionsWithoutAWait(t *testing.T) {
	for _, v := range []string{"", "0", "-3", "soon", "Fri, 31 Dec 1999 23:59:59 GMT"} {
		s := &heedtest.Server{Respond: heedtest.Script(heedtest.Response{Status: 429, Header: http.Header{"Retry-After": {v}}})}
		inMemory(t, s, func(t *testing.T) {
			require.Equal(t, []int{429, 200}, at(t, s, 0, time.Nanosecond), v)
		})
	}
}

func TestServer_rejectsEarlyRetriesByKey(t *testing.T) {
	s := &heedtest.Server{
		Key:     func(r *http.Request) string { return r.URL.Path },
		Respond: heedtest.Script(heedtest.Response{Status: 429, Header: http.Header{"Retry-After": {"3"}}}),
	}
	inMemory(t, s, func(t *testing.T) {
		c := s.Client()
		for _, want := range []struct {
			path   string
			status int
		}{{"/a", 429}, {"/a", 429}, {"/b", 200}} {
			time.Sleep(time.Second)
			status, _, err := fetch(c, "GET", s.URL+want.path, "")
			require.NoError(t, err)
			require.Equal(t, want.status, status, want.path)
		}
		require.Len(t, s.EarlyRetries(), 1)
	})
}

func TestServer_recordsRequests(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		s := &heedtest.Server{HTTP2: http2}
		inMemory(t, s, func(t *testing.T) {
			start, c := time.Now(), s.Client()
			_, _, err := fetch(c, "PUT", s.URL+"/a?b=c", "hello")
			require.NoError(t, err)
			time.Sleep(time.Second)
			req, _ := http.NewRequest("GET", s.URL+"/d", nil)
			req.Header.Set("Idempotency-Key", "7")
			resp, err := c.Do(req)
			require.NoError(t, err)
			resp.Body.Close()
			_, _, err = fetch(s.Client(), "POST", "http://other.test/e", string(bytes.Repeat([]byte{'x'}, 1<<20+1)))
			require.NoError(t, err)

			var seen []string
			for _, a := range s.Requests() {
				seen = append(seen, fmt.Sprint(a.N, " ", a.At.Sub(start), " ", a.Conn, " ", a.Method, " ", a.URL, " ", a.Host, " ", a.Status, " ", len(a.Body)))
				require.NoError(t, a.BodyErr)
			}
			require.Equal(t, []string{
				"1 0s 1 PUT /a?b=c heedtest.test 200 5",
				"2 1s 1 GET /d heedtest.test 200 0",
				"3 1s 2 POST /e other.test 200 1048576",
			}, seen)
			require.Equal(t, "7", s.Requests()[1].Header.Get("Idempotency-Key"))
			require.Nil(t, s.Requests()[1].Body)
			require.Equal(t, http2, s.Requests()[0].Proto == "HTTP/2.0")
			require.Equal(t, 2, s.Conns())
		})
	}
}

func TestServer_recordsTruncatedBodies(t *testing.T) {
	s := new(heedtest.Server)
	inMemory(t, s, func(t *testing.T) {
		body, w := io.Pipe()
		go func() {
			w.Write([]byte("half"))
			time.Sleep(time.Second)
			w.CloseWithError(io.ErrClosedPipe)
		}()
		_, err := s.Client().Post(s.URL, "", body)
		require.ErrorIs(t, err, io.ErrClosedPipe)
		synctest.Wait() // wait until the server has noticed
		require.Equal(t, "half", string(s.Requests()[0].Body))
		require.ErrorIs(t, s.Requests()[0].BodyErr, io.ErrUnexpectedEOF)
	})
}

// TestServer_recordsNoStatusBeforeTheResponse checks a client that gives up during the Delay.
func TestServer_recordsNoStatusBeforeTheResponse(t *testing.T) {
	for _, status := range []int{0, 503} {
		s := &heedtest.Server{Respond: heedtest.Script(heedtest.Response{Delay: time.Minute, Status: status})}
		inMemory(t, s, func(t *testing.T) {
			c := s.Client()
			c.Timeout = time.Second
			_, err := c.Get(s.URL)
			require.Error(t, err)
			time.Sleep(time.Hour)
			require.Zero(t, s.Requests()[0].Status)
		})
	}
}

// TestServer_respondsWithOKByDefault checks a handler that writes a body without a status.
func TestServer_respondsWithOKByDefault(t *testing.T) {
	s := &heedtest.Server{
		Limit: &throttlehttp.Middleware{Limiter: throttle.DenyAll, OnReject: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "not ")
			io.WriteString(w, "now")
		})},
		EditHeader: func(h http.Header) { h.Set("X-Edited", "yes") },
	}
	inMemory(t, s, func(t *testing.T) {
		resp, err := s.Client().Get(s.URL)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.Equal(t, "not now", string(body))
		require.Equal(t, http.StatusOK, resp.StatusCode)
		require.Equal(t, "yes", resp.Header.Get("X-Edited"))
		require.Equal(t, http.StatusOK, s.Requests()[0].Status)
	})
}

// TestServer_recordsTheFirstMiBOfABody checks bodies that are longer than what is kept: they
// are read completely, so that an error at their end is recorded.
func TestServer_recordsTheFirstMiBOfABody(t *testing.T) {
	const kept = 1 << 20
	for _, c := range []struct {
		sent, declared int64
		err            error
	}{
		{kept, kept, nil}, {kept + 100, kept + 100, nil}, {kept + 100, kept + 200, io.ErrUnexpectedEOF},
	} {
		s := &heedtest.Server{}
		inMemory(t, s, func(t *testing.T) {
			body := io.MultiReader(bytes.NewReader(make([]byte, c.sent)))
			if c.err != nil {
				body = io.MultiReader(body, iotest.ErrReader(errors.New("the client breaks off")))
			}
			req, err := http.NewRequest("POST", s.URL, body)
			require.NoError(t, err)
			req.ContentLength = c.declared
			resp, err := s.Client().Do(req)
			require.Equal(t, c.err == nil, err == nil, "%v", err)
			if err == nil {
				resp.Body.Close()
			}
			synctest.Wait()
			got := s.Requests()[0]
			require.Len(t, got.Body, kept)
			require.ErrorIs(t, got.BodyErr, c.err)
		})
	}
}

func TestEditHeader_runsLast(t *testing.T) {
	full := &throttlehttp.Middleware{Dialect: headers.XRateLimit | headers.Draft03 | headers.Draft10 | headers.XRetryAfter, Limiter: countingRejected(1, time.Minute)}
	for name, tt := range map[string]struct {
		edit  func(http.Header)
		skew  time.Duration
		check func(*testing.T, http.Header)
	}{
		"silent": {edit: heedtest.NoHeaders, check: func(t *testing.T, h http.Header) {
			for _, other := range []string{"Date", "Content-Type", "X-Content-Type-Options", "Content-Length", "Cache-Control", "Vary"} {
				h.Del(other)
			}
			require.Empty(t, h)
		}},
		"lies": {edit: func(h http.Header) { h.Set("X-RateLimit-Remaining", "1000") }, check: func(t *testing.T, h http.Header) {
			require.Equal(t, []string{"1000"}, h["X-Ratelimit-Remaining"])
		}},
		"epoch": {edit: heedtest.EpochReset, skew: time.Hour, check: func(t *testing.T, h http.Header) {
			require.Equal(t, []string{strconv.FormatInt(time.Now().Add(time.Hour+time.Minute).Unix(), 10)}, h["X-Ratelimit-Reset"])
		}},
		"date": {edit: heedtest.RetryDate, skew: time.Hour, check: func(t *testing.T, h http.Header) {
			require.Equal(t, []string{"Sat, 01 Jan 2000 01:01:00 GMT"}, h["Retry-After"]) // bubbles begin in the year 2000
		}},
		"skewed": {skew: -10 * time.Minute, check: func(t *testing.T, h http.Header) {
			date, err := http.ParseTime(h.Get("Date"))
			require.NoError(t, err)
			require.Equal(t, 10*time.Minute, time.Since(date))
		}},
	} {
		s := &heedtest.Server{Limit: full, EditHeader: tt.edit, Skew: tt.skew}
		inMemory(t, s, func(t *testing.T) {
			full.Limiter = countingRejected(1, time.Minute)
			c := s.Client()
			_, _, err := fetch(c, "GET", s.URL, "")
			require.NoError(t, err)
			resp, err := c.Get(s.URL)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, http.StatusTooManyRequests, resp.StatusCode, name)
			tt.check(t, resp.Header)
		})
	}
}
