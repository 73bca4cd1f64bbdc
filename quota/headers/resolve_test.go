package headers

import (
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReport_clampsDelaysToAYear(t *testing.T) {
	at := time.Unix(1700000000, 0)
	for _, v := range []string{"31622401", "315360000", "9223372036854775807", "99999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"} {
		r := Parse(429, http.Header{"Retry-After": {v}}, at)
		require.True(t, r.HasRetryAfter, v)
		require.Equal(t, MaxDelay, r.RetryAfter, v)
		require.Equal(t, MaxDelay, r.Wait, v)
		r = Parse(200, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset-After": {v}}, at)
		require.True(t, r.Limits[0].HasReset, v)
		require.Equal(t, MaxDelay, r.Limits[0].ResetAfter, v)
	}
	r := Parse(429, http.Header{"Retry-After": {"31622400"}}, at)
	require.Equal(t, MaxDelay, r.RetryAfter, "exactly 366 days")
}

// A negative reset is in the past. Gateways send -1 for "unknown", so it is ignored.
func TestReport_clampsNegativeResetsToZero(t *testing.T) {
	at := time.Unix(1700000000, 0)
	for v, want := range map[string]bool{"-5": true, "-1484742195": true, "-1": false} {
		r := Parse(200, http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {v}}, at)
		require.Equal(t, want, r.Limits[0].HasReset, v)
		require.Zero(t, r.Limits[0].ResetAfter, v)
	}
	r := Parse(200, http.Header{"X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"5"}, "X-Ratelimit-Reset": {"1600000000"}}, at)
	require.True(t, r.Limits[0].HasReset)
	require.Zero(t, r.Limits[0].ResetAfter, "three years ago")
}

func TestReport_saturatesWindows(t *testing.T) {
	for _, name := range []string{"X-Ratelimit-9999-9999w-Limit", "X-Ratelimit-Limit-9999-9999d", "X-Ratelimit-9998-9997w-Limit", "X-Ratelimit-Limit-9999w"} {
		for _, l := range Parse(200, http.Header{name: {"10"}}, time.Unix(1700000000, 0)).Limits {
			require.Equal(t, MaxDelay, l.Window, name)
		}
	}
	r := Parse(200, http.Header{"X-Ratelimit-Limit": {"10;w=9223372036854775807"}}, time.Unix(1700000000, 0))
	require.Equal(t, MaxDelay, r.Limits[0].Window)
}

// Providers and hooks of users may set any number.
func TestReport_clampsValuesOfCustomReaders(t *testing.T) {
	bad := func(r *Report) {
		r.RetryAfter, r.HasRetryAfter = -time.Hour, true
		r.Limits = append(r.Limits, Limit{Limit: -1, Remaining: -2, Used: -3, HasRemaining: true, ResetAfter: math.MinInt64, Window: math.MaxInt64, Rate: math.NaN()})
	}
	want := Limit{HasRemaining: true, Window: MaxDelay}
	r := Reader{
		Hosts: map[string]Provider{"api.test": {Headers: map[string]Rule{"X-Acme": {Read: func(_ string, r *Report) { bad(r) }}}}},
		Body:  func(_ int, _ http.Header, _ []byte, r *Report) { *r = Report{Throttled: true}; bad(r) },
	}
	rep := r.Parse("api.test", 429, http.Header{"X-Acme": {"x"}}, time.Unix(1700000000, 0))
	require.Equal(t, []Limit{want}, rep.Limits)
	require.Equal(t, StatedWait, rep.Stated)
	require.Zero(t, rep.Wait)
	r.ReadBody(429, nil, nil, &rep)
	require.Equal(t, []Limit{want}, rep.Limits)
	require.Zero(t, rep.RetryAfter)
}

func TestReport_statementOfEachRejection(t *testing.T) {
	const secondary = `{"message":"You have exceeded a secondary rate limit. Please wait a few minutes before you try again."}`
	for _, c := range []struct {
		name         string
		status       int
		header, body string
		stated       Statement
		wait         time.Duration
	}{
		{"a success", 200, "Retry-After: 5\nX-RateLimit-Reset: 30", "", NotStated, 0},
		{"a bare 429", 429, "", "", NotStated, 0},
		{"a 429 with units left: a limit that it does not name", 429, "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 4\nX-RateLimit-Reset: 30", "", NotStated, 0},
		{"Retry-After: 0", 429, "Retry-After: 0", "", StatedWait, 0},
		{"a malformed Retry-After", 429, "Retry-After: -3", "", NotStated, 0},
		{"503 with Retry-After", 503, "Retry-After: 7", "", StatedWait, 7 * time.Second},
		{"a bare 503", 503, "", "", NotStated, 0},
		{"503 with a reset alone may be an outage", 503, "RateLimit-Reset: 30", "", NotStated, 0},
		{"nothing left", 429, "X-RateLimit-Limit: 10\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30", "", StatedLimit, 0},
		{"only when", 429, "RateLimit-Reset: 30", "", StatedWait, 30 * time.Second},
		{"only when, as a delay", 429, "X-RateLimit-Reset-After: 2.5", "", StatedWait, 2500 * time.Millisecond},
		{"only when, as an instant", 429, dateLine + "X-RateLimit-Reset: 1700000042", "", StatedWait, 42 * time.Second},
		{"only when, and of what size", 429, "X-RateLimit-Limit: 100\nX-RateLimit-Reset: 30", "", StatedWait, 30 * time.Second},
		{"the earliest of several", 429, "X-RateLimit-Reset-Day: 9000\nX-RateLimit-Reset-Minute: 12", "", StatedWait, 12 * time.Second},
		{"a reset of 0", 429, "X-RateLimit-Reset: 0", "", NotStated, 0},
		{"Retry-After before the reset", 429, "Retry-After: 5\nRateLimit-Reset: 30", "", StatedWait, 5 * time.Second},
		{"0 beside a reset of the limit", 429, "Retry-After: 0\nX-RateLimit-Limit: 10\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30", "", StatedLimit, 0},
		{"0 beside a reset of the limit, 403", 403, "Retry-After: 0\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30", "", StatedLimit, 0},
		{"0 beside a reset of the limit, 503", 503, "Retry-After: 0\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30", "", StatedLimit, 0},
		{"the past beside a reset of the limit", 429, "Retry-After: Fri, 31 Dec 1999 23:59:59 GMT\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30", "", StatedLimit, 0},
		{"0 in a body beside a reset of the limit", 429, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 30", `{"retry_after":0}`, StatedLimit, 0},
		{"0 beside a bucket", 429, dateLine + "X-RateLimit-Remaining: 0\nX-RateLimit-Replenish-Rate: 2\nRetry-After: 0", "", StatedLimit, 0},
		{"0 beside a reset of 0", 429, "Retry-After: 0\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 0", "", StatedWait, 0},
		{"a sentence beside a reset of 0", 429, "X-RateLimit-Remaining: 0\nX-RateLimit-Reset: 0", "Try again in 4 seconds.", StatedWait, 4 * time.Second},
		{"0 beside a limit with units left", 429, "Retry-After: 0\nX-RateLimit-Remaining: 1\nX-RateLimit-Reset: 30", "", StatedWait, 0},
		{"Envoy's mark", 503, "X-Envoy-Ratelimited: true", "", NotStated, 0},
		{"a known code", 429, "", `{"error":{"code":"rate_limit_exceeded"}}`, NotStated, 0},
		{"a known code with a delay", 429, "", `{"code":"rate_limited","retry_after":0}`, StatedWait, 0},
		{"GitHub's secondary limit, 403", 403, "", secondary, StatedWait, time.Minute},
		{"GitHub's secondary limit, 429", 429, "X-RateLimit-Limit: 30\nX-RateLimit-Remaining: 14\nX-RateLimit-Reset: 20", secondary, StatedWait, time.Minute},
		{"GitHub's secondary limit with Retry-After", 403, "Retry-After: 9", secondary, StatedWait, 9 * time.Second},
		{"GitHub's primary limit", 403, "X-RateLimit-Limit: 60\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 900", `{"message":"API rate limit exceeded"}`, StatedLimit, 0},
	} {
		var r Reader
		rep := r.Parse("", c.status, parseHeader(c.header), time.Unix(1700000000, 0))
		if c.body != "" {
			r.ReadBody(c.status, nil, []byte(c.body), &rep)
		}
		require.Equal(t, c.stated, rep.Stated, c.name)
		require.Equal(t, c.wait, rep.Wait, c.name)
	}
	require.Equal(t, "wait", StatedWait.String())
	require.Equal(t, "unknown statement", Statement(99).String())
}
