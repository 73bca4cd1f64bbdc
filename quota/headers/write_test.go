package headers

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func twoLimits() Report {
	return Report{
		Limits: []Limit{
			{Name: "hour", Limit: 1000, Remaining: 999, HasLimit: true, HasRemaining: true,
				ResetAfter: time.Hour - time.Millisecond, HasReset: true, Window: time.Hour},
			{Name: "burst", Unit: "content_bytes", Limit: 10, Remaining: 1, HasLimit: true, HasRemaining: true,
				ResetAfter: 2 * time.Second, HasReset: true, Window: time.Second},
		},
		RetryAfter: time.Second + 1, HasRetryAfter: true,
	}
}

func TestWrite_eachDialect(t *testing.T) {
	for d, want := range map[Dialect]http.Header{
		0: {"Retry-After": {"2"}},
		XRateLimit: {"Retry-After": {"2"}, "X-Ratelimit-Limit": {"10"}, "X-Ratelimit-Remaining": {"1"},
			"X-Ratelimit-Reset": {"2"}},
		Draft03 | XRetryAfter: {"Retry-After": {"2"}, "X-Ratelimit-Retry-After": {"2"}, "Ratelimit-Limit": {"10, 10;w=1"},
			"Ratelimit-Remaining": {"1"}, "Ratelimit-Reset": {"2"}},
		Draft10: {"Retry-After": {"2"}, "Ratelimit": {`"hour";r=999;t=3600, "burst";r=1;t=2`},
			"Ratelimit-Policy": {`"hour";q=1000;w=3600, "burst";q=10;qu="content-bytes";w=1`}},
	} {
		h := http.Header{}
		Write(h, d, twoLimits())
		require.Equal(t, want, h, "dialect %d", d)
	}
}

func TestWrite_omitsUnstatedValues(t *testing.T) {
	h := http.Header{}
	Write(h, XRateLimit|Draft03|Draft10|XRetryAfter, Report{})
	require.Empty(t, h)
	Write(h, XRateLimit|Draft03|Draft10, Report{Limits: []Limit{{HasReset: true, ResetAfter: time.Second}}})
	require.Equal(t, http.Header{"X-Ratelimit-Reset": {"1"}, "Ratelimit-Reset": {"1"}}, h)
}

func TestWrite_roundsUpAndClamps(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0", 0: "0", 1: "1", time.Second: "1", time.Second + 1: "2", 1<<63 - 1: "999999999",
	} {
		h := http.Header{}
		Write(h, 0, Report{RetryAfter: d, HasRetryAfter: true})
		require.Equal(t, want, h.Get("Retry-After"), "%v", d)
	}
	h := http.Header{}
	Write(h, Draft10, Report{Limits: []Limit{{Name: "a\"\\\r\nä", Remaining: -5, HasRemaining: true, Limit: 1<<63 - 1, HasLimit: true}}})
	require.Equal(t, `"a\"\\????";r=0`, h.Get("Ratelimit"))
	require.Equal(t, `"a\"\\????";q=999999999999999`, h.Get("Ratelimit-Policy"))
}

func TestWrite_replacesExistingHeaders(t *testing.T) {
	h := http.Header{"X-Ratelimit-Limit": {"1", "2"}, "X-Other": {"stays"}}
	Write(h, XRateLimit, Report{Limits: []Limit{{Limit: 3, HasLimit: true}}})
	require.Equal(t, http.Header{"X-Ratelimit-Limit": {"3"}, "X-Other": {"stays"}}, h)
}

func BenchmarkWrite(b *testing.B) {
	h, r := http.Header{}, twoLimits()
	b.ReportAllocs()
	for b.Loop() {
		Write(h, XRateLimit, r)
	}
}
