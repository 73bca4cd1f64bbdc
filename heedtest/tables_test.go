package heedtest

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/heed-go/heed/internal/scorecard"
	"github.com/stretchr/testify/require"
)

// TestEarlyGuard checks requests at the ends of the time for which they are early.
func TestEarlyGuard(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var b earlyGuard
	check := func(after, penalty time.Duration) [2]time.Duration {
		early, left := b.check("k", start.Add(after), penalty)
		return [2]time.Duration{early, left}
	}
	record := func(after time.Duration, status int, retryAfter string, skew, grace time.Duration) {
		b.record("k", status, http.Header{"Retry-After": {retryAfter}}, start.Add(after), skew, grace)
	}
	record(0, 500, "10", 0, 0)
	record(0, 200, "10", 0, 0)
	record(0, 429, "0", 0, 0)
	record(0, 429, "-1", 0, 0)
	record(0, 429, "x", 0, 0)
	record(0, 429, start.Format(http.TimeFormat), 0, 0)
	require.Zero(t, check(1, 0), "no rejection that states a time")

	record(0, 429, "10", 0, 20*time.Millisecond)
	for after, want := range map[time.Duration][2]time.Duration{
		0:                       {},
		20 * time.Millisecond:   {},
		20*time.Millisecond + 1: {10*time.Second - 20*time.Millisecond - 1, 10*time.Second - 20*time.Millisecond - 1},
		10*time.Second - 1:      {1, 1},
		10 * time.Second:        {},
	} {
		require.Equal(t, want, check(after, 0), after)
	}
	require.Equal(t, [2]time.Duration{time.Second, 6 * time.Second}, check(9*time.Second, 5*time.Second))
	require.Equal(t, [2]time.Duration{1, 1}, check(15*time.Second-1, 0), "with the penalty")
	record(9*time.Second, 503, "1", 0, time.Hour)
	require.Equal(t, [2]time.Duration{1, 1}, check(15*time.Second-1, 0), "an earlier end and a grace within the time change nothing")
	record(15*time.Second, 503, "2", 0, 0)
	require.Equal(t, [2]time.Duration{time.Second, time.Second}, check(16*time.Second, 0))
	require.Zero(t, check(17*time.Second, 0))
	record(20*time.Second, 503, start.Add(time.Minute).Format(http.TimeFormat), 30*time.Second, 0)
	require.Zero(t, check(20*time.Second, 0), "not at the same instant")
	require.Equal(t, [2]time.Duration{5 * time.Second, 5 * time.Second}, check(25*time.Second, 0), "a date by the clock of the server, which is 30 s ahead")

	for left, want := range map[time.Duration]string{1: "1", time.Second: "1", time.Second + 1: "2", 59*time.Second + 1: "60"} {
		w := httptest.NewRecorder()
		rejectEarly(w, left)
		require.Equal(t, []string{"429", want}, []string{strconv.Itoa(w.Code), w.Header().Get("Retry-After")})
		require.Equal(t, want, seconds(left))
	}
}

// TestConn_hangs checks a connection that behaves as if its other end had lost power.
func TestConn_hangs(t *testing.T) {
	in, out := strings.NewReader("abc"), new(strings.Builder)
	c := &conn{in: in, out: out, closed: make(chan struct{}), settingsSent: make(chan struct{})}
	c.hang()
	n, err := c.Write([]byte("lost"))
	require.NoError(t, err)
	require.Equal(t, 4, n)
	require.Empty(t, out.String())
	close(c.closed)
	n, err = c.Read(make([]byte, 3))
	require.Equal(t, net.ErrClosed, err)
	require.Zero(t, n)
}

// TestResponders checks the servers of the checks at exact times.
func TestResponders(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(d time.Duration) Request {
		return Request{At: start.Add(d), Header: http.Header{callHeader: {"1"}}}
	}
	w := newWindow(2, time.Second)
	for i, s := range []struct {
		at time.Duration
		ok bool
	}{{0, true}, {1, true}, {2, false}, {time.Second - 1, false}, {time.Second, true}, {time.Second + 1, true}, {2*time.Second - 1, false}, {5 * time.Second, true}} {
		require.Equal(t, s.ok, w.take(start.Add(s.at)), i)
	}

	var lefts []time.Duration
	respond := untilElapsed(10*time.Second, func(left time.Duration, end time.Time) Response {
		require.Equal(t, start.Add(10*time.Second), end)
		lefts = append(lefts, left)
		return status(429)
	})
	for d, want := range map[time.Duration]int{10*time.Second - 1: 429, 10 * time.Second: 0, time.Minute: 0} {
		require.Equal(t, 429, respond(at(0)).Status)
		require.Equal(t, want, respond(at(d)).Status, d)
	}
	require.Contains(t, lefts, time.Duration(1))
	require.Contains(t, lefts, 10*time.Second)

	first := respondFirst(status(503, "Retry-After", "2", "X-A", "b"), status(204))
	require.Equal(t, Response{Status: 503, Header: http.Header{"Retry-After": {"2"}, "X-A": {"b"}}}, first(at(0)))
	require.Equal(t, 204, first(at(0)).Status)
	other := at(0)
	other.Header = http.Header{callHeader: {"2"}}
	require.Equal(t, 503, first(other).Status)
	require.Equal(t, 503, always(status(503))(other).Status)

	script := Script(status(500), status(501))
	for _, want := range []int{500, 501, 0, 0} {
		require.Equal(t, want, script(at(0)).Status)
	}
}

// TestServer_keepsAMiBOfABody checks bodies around the maximum that is kept.
func TestServer_keepsAMiBOfABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := new(Server)
		server.StartInMemory()
		defer server.Close()
		client := server.Client()
		defer client.CloseIdleConnections()
		for n, kept := range map[int]int{1 << 20: 1 << 20, 1<<20 + 1: 1 << 20, 3 << 20: 1 << 20, 1: 1} {
			resp, err := client.Post(server.URL, "text/plain", strings.NewReader(strings.Repeat("x", n)))
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, "ok\n", string(body))
			requests := server.Requests()
			last := requests[len(requests)-1]
			require.Len(t, last.Body, kept, n)
			require.NoError(t, last.BodyErr)
			require.Equal(t, len(requests), last.N)
			require.Equal(t, http.StatusOK, last.Status)
		}
	})
}

func TestEditHeaders(t *testing.T) {
	const date = "Sun, 01 Mar 2026 12:00:00 GMT"
	for _, tt := range []struct {
		edit     func(http.Header)
		in, want map[string]string
	}{
		{EpochReset, map[string]string{"Date": date, "X-Ratelimit-Reset": "1"}, map[string]string{"X-Ratelimit-Reset": "1772366401"}},
		{EpochReset, map[string]string{"Date": date, "X-Ratelimit-Reset": "soon"}, map[string]string{"X-Ratelimit-Reset": "soon"}},
		{EpochReset, map[string]string{"X-Ratelimit-Reset": "1"}, map[string]string{"X-Ratelimit-Reset": "1"}},
		{RetryDate, map[string]string{"Date": date, "Retry-After": "60"}, map[string]string{"Retry-After": "Sun, 01 Mar 2026 12:01:00 GMT"}},
		{RetryDate, map[string]string{"Date": date}, map[string]string{"Retry-After": ""}},
		{NoHeaders, map[string]string{"Retry-After": "1", "Ratelimit": "a", "Ratelimit-Policy": "b", "X-Ratelimit-Limit": "c", "X-Other": "d"},
			map[string]string{"Retry-After": "", "Ratelimit": "", "Ratelimit-Policy": "", "X-Ratelimit-Limit": "", "X-Other": "d"}},
	} {
		h := http.Header{}
		for k, v := range tt.in {
			h.Set(k, v)
		}
		tt.edit(h)
		for k, v := range tt.want {
			require.Equal(t, v, h.Get(k), "%v", tt.in)
		}
	}
}

// TestMarks checks how figures decide about marks, and how they are printed.
func TestMarks(t *testing.T) {
	for _, tt := range []struct {
		run  func(*evaluation)
		want scorecard.Mark
	}{
		{func(*evaluation) {}, scorecard.Mark{Result: scorecard.NotApplicable}},
		{func(e *evaluation) { e.measured(2, "two") }, scorecard.Mark{Result: scorecard.Passed, Figure: 2}},
		{func(e *evaluation) { e.measured(2.5, "more") }, scorecard.Mark{Result: scorecard.Failed, Figure: 2.5, Detail: "more"}},
		{func(e *evaluation) {
			e.measured(3, "a")
			e.measured(4, "b %d", 7)
			e.measured(4, "c")
			e.measured(1, "d")
		}, scorecard.Mark{Result: scorecard.Failed, Figure: 4, Detail: "b 7"}},
		{func(e *evaluation) { e.measured(0, "first"); e.fail("fault"); e.fail("other") }, scorecard.Mark{Result: scorecard.Failed, Detail: "fault"}},
		{func(e *evaluation) { e.measured(0, "first"); e.measured(0, "second") }, scorecard.Mark{Result: scorecard.Passed}},
	} {
		tt.want.Check, tt.want.Unit, tt.want.Limit = "c", "u", 2
		x := &runner{maxRealTime: maxRealTime}
		require.Equal(t, tt.want, x.mark(t, check{"c", "u", 2, tt.run}))
	}
	require.Equal(t, "c: failed: 2.5 u, limit 2: more", scorecard.Mark{Check: "c", Result: scorecard.Failed, Figure: 2.5, Unit: "u", Limit: 2, Detail: "more"}.String())
	require.Equal(t, "a    passed  0    (limit 1)  s  \nbbb  failed  2.5  (limit 2)  u  more\n",
		scorecard.Card{{Check: "a", Result: scorecard.Passed, Limit: 1, Unit: "s"}, {Check: "bbb", Result: scorecard.Failed, Figure: 2.5, Limit: 2, Unit: "u", Detail: "more"}}.String())
	for f, want := range map[float64]string{0: "0", 10: "10", 100: "100", 1.5: "1.5", 0.1234: "0.123", 0.1236: "0.124", 2.0004: "2", 1000: "1000"} {
		require.Equal(t, want, scorecard.Number(f))
	}
}
