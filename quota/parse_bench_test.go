package quota

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
