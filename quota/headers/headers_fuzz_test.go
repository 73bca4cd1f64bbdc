package headers

import (
	"math"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// parseHeader parses a header in the form that the fuzzer uses: one line per field, with a
// colon between name and value.
func parseHeader(text string) http.Header {
	h := make(http.Header)
	for line := range strings.SplitSeq(text, "\n") {
		if name, value, ok := strings.Cut(line, ":"); ok {
			h.Add(name, strings.TrimSpace(value))
		}
	}
	return h
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"X-RateLimit-Limit: 5000\nX-RateLimit-Remaining: 4872\nX-RateLimit-Reset: 1631652409\nDate: Tue, 14 Sep 2021 20:43:15 GMT",
		"RateLimit: \"a\";r=1;t=5, \"b\";r=0;t=9\nRateLimit-Policy: \"a\";q=10;w=60;qu=\"content-bytes\"",
		"RateLimit-Limit: 3, 3;w=1, 60;w=60\nRateLimit-Remaining: 59\nRateLimit-Reset: 42\nAge: 0",
		"X-App-Rate-Limit: 20:1,100:120\nX-App-Rate-Limit-Count: 21:1,36:120\nRetry-After: 2",
		"X-RateLimit: {\"name\":\"API\",\"period\":10,\"limit\":50,\"remaining\":0,\"until\":\"2016-01-01T12:00:20Z\"}",
		"Unity-RateLimit: limit=20, remaining=19, reset=1; limit=4000, remaining=3994, reset=1579",
		"X-Shopify-Shop-Api-Call-Limit: 32/40\nSforce-Limit-Info: api-usage=135/5000",
		"x-ratelimit-limit-tokens: -1\nx-ratelimit-remaining-tokens: 9223372036854775807\nx-ratelimit-reset-tokens: 1m6.7s",
		"X-RateLimit-Limit: 0.045\nX-RateLimit-Reset: 99999999999999999999\nRetry-After: 99999999999\nAge: 99999999999999999999",
		"X-App-Usage: {\"call_count\":28,\"total_time\":1e300}\nX-Sentry-Rate-Limits: 60:transaction:key, 2700:default",
		"X-RateLimit-UserLimit: 1\nX-RateLimit-ClientRemaining: 2\nX-RateLimit-Reset: Tue Feb 16 2021 09:02:42 GMT+0100 (C)",
	} {
		f.Add(429, s)
		f.Add(200, s)
	}
	f.Fuzz(func(t *testing.T, status int, text string) {
		h := parseHeader(text)
		r := Parse(status, h, time.Unix(1700000000, 0))
		checkReport(t, r)
		require.Equal(t, r, Parse(status, h, time.Unix(1700000000, 0)), "the order of a map must not matter")
		var reader Reader
		reader.ReadBody(status, h, []byte(text), &r)
		checkReport(t, r)
	})
}

// checkReport checks the properties of every report, for any input.
func checkReport(t *testing.T, r Report) {
	require.GreaterOrEqual(t, min(r.RetryAfter, r.Wait), time.Duration(0))
	require.LessOrEqual(t, max(r.RetryAfter, r.Wait), MaxDelay)
	require.False(t, r.Wait > 0 && r.Stated != StatedWait)
	require.False(t, r.RetryAfter > 0 && !r.HasRetryAfter)
	require.LessOrEqual(t, len(r.Limits), 2*maxGroups)
	for _, l := range r.Limits {
		require.GreaterOrEqual(t, min(l.ResetAfter, l.Window), time.Duration(0))
		require.LessOrEqual(t, max(l.ResetAfter, l.Window), MaxDelay)
		require.GreaterOrEqual(t, min(l.Limit, l.Remaining, l.Used), int64(0))
		require.False(t, l.Rate < 0 || math.IsNaN(l.Rate) || math.IsInf(l.Rate, 0), "rate %v", l.Rate)
		require.LessOrEqual(t, len(l.Name)+len(l.Unit), 2*maxValueLen)
	}
}

// FuzzWriteParse checks that Parse returns what Write has written, as far as the dialect
// can state it.
func FuzzWriteParse(f *testing.F) {
	f.Add(int64(100), int64(42), uint32(30), uint32(60), uint32(5), byte(31), "api", "content_bytes")
	f.Add(int64(0), int64(0), uint32(0), uint32(0), uint32(0), byte(15), "", "")
	f.Add(int64(1), int64(1), uint32(1e9), uint32(1), uint32(1e9), byte(7), `q"\uote`, "tokens")
	f.Fuzz(func(t *testing.T, limit, remaining int64, reset, window, retry uint32, has byte, name, unit string) {
		l := Limit{HasLimit: has&1 != 0, HasRemaining: has&2 != 0, HasReset: has&4 != 0}
		if l.HasLimit {
			l.Limit = clampCount(limit)
			l.Window = seconds(window)
		}
		if l.HasRemaining {
			l.Remaining = clampCount(remaining)
		}
		if l.HasReset {
			l.ResetAfter, l.ResetFormat = seconds(reset), FormatDeltaSeconds
		}
		r := Report{Throttled: true}
		if r.HasRetryAfter = has&8 != 0; r.HasRetryAfter {
			r.RetryAfter, r.RetryFormat = seconds(retry), FormatDeltaSeconds
		}
		if l.Limit == 0 {
			l.HasLimit = false // in a rejection a limit of zero counts as not stated
		}
		plain := l
		plain.Window = 0
		checkRoundTrip(t, XRateLimit, r, plain)
		checkRoundTrip(t, XRateLimit|XRetryAfter, r, plain)
		if l.HasLimit && l.Limit > 0 {
			checkRoundTrip(t, Draft03, r, l)
		}
		if l.HasReset = l.HasReset && l.HasRemaining; !l.HasReset {
			l.ResetAfter, l.ResetFormat = 0, FormatNone
		}
		l.Name, l.Unit = printable(name), printableUnit(unit)
		if l.Name == "" {
			l.Name = "default"
		}
		if !l.HasLimit {
			l.Unit, l.Window = "", 0
		}
		checkRoundTrip(t, Draft10, r, l)
	})
}

func checkRoundTrip(t *testing.T, d Dialect, r Report, l Limit) {
	if l.HasLimit || l.HasRemaining || l.HasReset {
		r.Limits = []Limit{l}
	}
	r.resolve(429)
	h := make(http.Header)
	Write(h, d, r)
	require.Equal(t, r, Parse(429, h, time.Unix(1700000000, 0)), "dialect %d: %v", d, h)
}

// seconds returns n seconds, at most MaxDelay.
func seconds(n uint32) time.Duration { return boundDelay(time.Duration(n) * time.Second) }

func clampCount(n int64) int64 { return min(max(n, 0), maxInteger) }

// printable removes the characters that a structured-field string cannot contain.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, s[:min(len(s), maxNameLen)])
}

func printableUnit(s string) string {
	s = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c == '_' {
			return c
		}
		return -1
	}, s[:min(len(s), maxNameLen)])
	if s == "requests" {
		return ""
	}
	return s
}
