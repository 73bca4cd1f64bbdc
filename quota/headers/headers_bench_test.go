package headers

import (
	"net/http"
	"testing"
	"time"
)

func githubHeader() http.Header {
	return http.Header{
		"Date":                  {"Tue, 14 Sep 2021 20:43:15 GMT"},
		"X-Ratelimit-Limit":     {"5000"},
		"X-Ratelimit-Remaining": {"4872"},
		"X-Ratelimit-Reset":     {"1631652409"},
	}
}

func BenchmarkParse_github(b *testing.B) {
	h, now := githubHeader(), time.Unix(1631652195, 0)
	b.ReportAllocs()
	for b.Loop() {
		Parse(200, h, now)
	}
}

// headerWithoutLimits returns the headers of a usual response that states no limits.
func headerWithoutLimits() http.Header {
	return http.Header{
		"Date": {"Tue, 14 Sep 2021 20:43:15 GMT"}, "Content-Type": {"application/json"}, "Content-Length": {"532"},
		"Server": {"nginx"}, "Cache-Control": {"no-cache"}, "Etag": {`"33a64df5"`}, "Vary": {"Accept-Encoding"},
		"X-Request-Id": {"7b2c"}, "Strict-Transport-Security": {"max-age=63072000"}, "X-Acme-Region": {"eu"},
	}
}

func BenchmarkParse_noLimits(b *testing.B) {
	h, now := headerWithoutLimits(), time.Unix(1631652195, 0)
	b.ReportAllocs()
	for b.Loop() {
		Parse(200, h, now)
	}
}
