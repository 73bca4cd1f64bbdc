package heed

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/heed-go/heed/backoff"
	"github.com/stretchr/testify/require"
)

var waitScenarios = []scenario{
	{number: 58, summary: "doubling with a cap, at any attempt", run: expectDelays(backoff.Exponential{Base: time.Second, Max: 5 * time.Minute, Jitter: backoff.None},
		map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 4: 8 * time.Second, 9: 256 * time.Second, 10: 5 * time.Minute, 63: 5 * time.Minute, 128: 5 * time.Minute, math.MaxInt: 5 * time.Minute})},
	{number: 59, summary: "1, 2, 4, 8, 10, 10", run: expectDelays(backoff.Exponential{Base: 1, Max: 10, Jitter: backoff.None}, map[int]time.Duration{1: 1, 2: 2, 3: 4, 4: 8, 5: 10, 6: 10})},
	{number: 60, summary: "2, 4, 8, 16, 30", run: expectDelays(backoff.Exponential{Base: 2, Max: 30, Jitter: backoff.None}, map[int]time.Duration{1: 2, 2: 4, 3: 8, 4: 16, 5: 30})},
	{number: 61, summary: "plus or minus 10 %, the cap holds after it", run: func(t *testing.T) {
		p := backoff.Exponential{Base: 500 * time.Millisecond, Max: 5 * time.Second, Jitter: backoff.PlusMinus, Spread: 0.1}
		for i, c := range []time.Duration{500, 1000, 2000, 4000, 5000, 5000} {
			c *= time.Millisecond
			for range 100 {
				d := p.Delay(i+1, 0)
				require.GreaterOrEqual(t, d, min(c*9/10, p.Max*8/10))
				require.LessOrEqual(t, d, min(c*11/10, p.Max))
			}
		}
	}},
	{number: 62, summary: "near the largest number", run: expectDelays(backoff.Exponential{Base: math.MaxInt64 / 2, Max: math.MaxInt64, Factor: 2.1, Jitter: backoff.None}, map[int]time.Duration{2: math.MaxInt64})},
	{number: 63, summary: "a draw of chance maps evenly onto a range", run: func(t *testing.T) {
		for draw, want := range map[float64]time.Duration{0: 1, 0.33: 1, 0.34: 2, 0.66: 2, 0.67: 3, 0.99: 3} {
			p := backoff.Exponential{Base: 2, Jitter: backoff.PlusMinus, Spread: 0.5, Rand: func() float64 { return draw }}
			require.Equal(t, want, p.Delay(1, 0), draw)
		}
	}},
	{number: 64, summary: "full jitter is within (0, min(max, base*2^i)]", run: func(t *testing.T) {
		p := backoff.Exponential{Base: time.Second, Max: 10 * time.Second}
		for i, c := range []time.Duration{1, 2, 4, 8, 10, 10} {
			for range 100 {
				d := p.Delay(i+1, 0)
				require.GreaterOrEqual(t, d, time.Duration(0))
				require.LessOrEqual(t, d, c*time.Second)
			}
		}
	}},
	{number: 65, summary: "constant", run: expectDelays(backoff.Constant(time.Second), map[int]time.Duration{1: time.Second, 2: time.Second, 100: time.Second})},
	{number: 66, summary: "linear", run: expectDelays(backoff.Linear{Base: time.Second, Max: time.Minute, Jitter: backoff.None}, map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 3: 3 * time.Second})},
	{number: 67, summary: "a bound on tries", run: func(t *testing.T) {
		s := newScript(500)
		tr := &Transport{Base: s, Retry: &RetryPolicy{MaxAttempts: 100, Backoff: twoDelays{}}}
		for range 2 {
			resp, err := get(t, tr)
			require.NoError(t, err)
			require.Equal(t, 500, resp.StatusCode)
		}
		require.Equal(t, 6, s.sent())
	}},
	{number: 68, summary: "a policy of one's own is asked once per retry, with the attempt", run: func(t *testing.T) {
		p := &recordingPolicy{}
		_, err := get(t, &Transport{Base: newScript(500), Retry: &RetryPolicy{Backoff: p}})
		require.NoError(t, err)
		require.Equal(t, []int{1, 2, 3, 4}, p.attempts)
	}},
	{number: 69, summary: "a panic of a policy passes through, and leaves nothing held", run: func(t *testing.T) {
		tr := &Transport{Base: newScript(500, 200), Retry: &RetryPolicy{Backoff: panickingPolicy{}}}
		require.Panics(t, func() { get(t, tr) })
		resp, err := get(t, tr)
		require.NoError(t, err)
		require.Equal(t, 200, resp.StatusCode)
	}},
	{number: 70, summary: "a hook sees failure and delay before each wait, and not at the end", run: func(t *testing.T) {
		var delays []time.Duration
		var statuses []int
		tr := &Transport{Base: newScript(500, 502, 503), Retry: threeAttempts(), Trace: &Trace{Retry: func(_ *http.Request, s RetryInfo) {
			delays, statuses = append(delays, s.Delay), append(statuses, s.Response.StatusCode)
		}}}
		_, err := get(t, tr)
		require.NoError(t, err)
		require.Equal(t, []time.Duration{time.Second, time.Second}, delays)
		require.Equal(t, []int{500, 502}, statuses)
	}},
	{number: 71, summary: "a ticker of retries", reason: "there is none: a Transport has no loop of the caller's to tick; the first attempt goes at once, and none with a cancelled context (108)"},

	{number: 72, summary: "Retry-After on 429", run: expectRetryDelay(429, "2", 2*time.Second, 3*time.Second)},
	{number: 73, summary: "Retry-After on 503", run: expectRetryDelay(503, "2", 2*time.Second, 3*time.Second)},
	{number: 74, summary: "by policy, Retry-After on any answer that is retried", run: expectRetryDelay(502, "2", 2*time.Second, 3*time.Second)},
	{number: 75, summary: "an HTTP date", run: expectRetryDelay(503, "Sat, 01 Jan 2000 00:00:05 GMT", 5*time.Second, 7*time.Second)},
	{number: 76, summary: "by policy, a date that is past gets our floor", run: expectRetryDelay(503, "Fri, 31 Dec 1999 00:00:00 GMT", 500*time.Millisecond, time.Second)},
	{number: 77, summary: "empty is not said", run: expectRetryDelay(503, "", 0, 500*time.Millisecond)},
	{number: 78, summary: "negative is not said", run: expectRetryDelay(503, "-5", 0, 500*time.Millisecond)},
	{number: 79, summary: "text, and a date that cannot be, are not said", run: func(t *testing.T) {
		expectRetryDelay(503, "soon", 0, 500*time.Millisecond)(t)
		expectRetryDelay(503, "Sat, 99 Jan 2000 00:00:05 GMT", 0, 500*time.Millisecond)(t)
	}},
	{number: 80, summary: "by policy, the largest of several", run: func(t *testing.T) {
		s := newScript(response{503, "", []string{"Retry-After", "1", "Retry-After", "7", "Retry-After", "3"}}, 200)
		_, err := send(t, s, "GET")
		require.NoError(t, err)
		require.GreaterOrEqual(t, s.gaps()[0], 7*time.Second)
	}},
	{number: 81, summary: "never cut: above MaxWait the answer comes at once", run: func(t *testing.T) {
		s := newScript(response{429, "later", []string{"Retry-After", "601"}}, 200)
		resp, err := get(t, &Transport{Base: s})
		require.NoError(t, err)
		require.Equal(t, "later", text(t, resp))
		require.Zero(t, time.Since(s.start))
		info, _ := InfoFrom(resp)
		require.ErrorIs(t, info.StopReason, ErrMaxWait)
		for range 20 { // jitter does not increase the delay above MaxWait
			s = newScript(response{503, "", []string{"Retry-After", "599"}}, 200)
			_, err = get(t, &Transport{Base: s})
			require.NoError(t, err)
			require.Equal(t, 2, s.sent())
			require.GreaterOrEqual(t, s.gaps()[0], 599*time.Second)
		}
	}},
	{number: 82, summary: "a fraction is a number; 0x10 and 1e3 are not", run: func(t *testing.T) {
		expectRetryDelay(503, "1.5", 1500*time.Millisecond, 2*time.Second)(t)
		expectRetryDelay(503, "0x10", 0, 500*time.Millisecond)(t)
		expectRetryDelay(503, "1e3", 0, 500*time.Millisecond)(t)
	}},
	{number: 83, summary: "what overflows is very long", run: func(t *testing.T) {
		for _, v := range []string{"9223372037", "99999999999999999999"} {
			s := newScript(response{503, "later", []string{"Retry-After", v}}, 200)
			resp, err := get(t, &Transport{Base: s})
			require.NoError(t, err)
			require.Equal(t, 503, resp.StatusCode, v)
			require.Equal(t, 1, s.sent())
		}
	}},
	{number: 84, summary: "dates of RFC 850 and asctime", run: func(t *testing.T) {
		expectRetryDelay(503, "Saturday, 01-Jan-00 00:00:05 GMT", 5*time.Second, 7*time.Second)(t)
	}},
	{number: 85, summary: "a wait that passes the deadline is not slept", run: func(t *testing.T) {
		s := newScript(response{429, "later", []string{"Retry-After", "60"}}, 200)
		c := NewClient(&Transport{Base: s})
		c.Timeout = 2600 * time.Millisecond
		resp, err := c.Get("http://api.test/")
		require.NoError(t, err)
		require.Equal(t, "later", text(t, resp))
		require.Zero(t, time.Since(s.start))
		info, ok := InfoFrom(resp)
		require.True(t, ok)
		require.ErrorContains(t, info.StopReason, "deadline")
	}},
}

func expectDelays(p backoff.Policy, want map[int]time.Duration) func(*testing.T) {
	return func(t *testing.T) {
		for attempt, d := range want {
			require.Equal(t, d, p.Delay(attempt, 0), attempt)
		}
	}
}

// expectRetryDelay checks the delay after a Retry-After of value.
func expectRetryDelay(status int, value string, least, most time.Duration) func(*testing.T) {
	return func(t *testing.T) {
		headers := []string{"Retry-After", value, "Date", time.Now().UTC().Format(http.TimeFormat)}
		s := newScript(response{status, "", headers}, 200)
		_, err := get(t, &Transport{Base: s, Retry: &RetryPolicy{MaxServerWait: -1}})
		require.NoError(t, err)
		require.Equal(t, 2, s.sent())
		require.GreaterOrEqual(t, s.gaps()[0], least, value)
		require.LessOrEqual(t, s.gaps()[0], most, value)
	}
}

// twoDelays is a policy that ends after two retries.
type twoDelays struct{}

func (twoDelays) Delay(attempt int, _ time.Duration) time.Duration {
	if attempt > 2 {
		return backoff.Stop
	}
	return time.Second
}

type recordingPolicy struct{ attempts []int }

func (a *recordingPolicy) Delay(attempt int, _ time.Duration) time.Duration {
	a.attempts = append(a.attempts, attempt)
	return 0
}

type panickingPolicy struct{}

func (panickingPolicy) Delay(int, time.Duration) time.Duration { panic("policy") }
