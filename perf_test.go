package heed

import (
	"net/http"
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
)

// fixed answers everything alike and allocates nothing.
type fixed http.Response

func (f *fixed) RoundTrip(*http.Request) (*http.Response, error) { return (*http.Response)(f), nil }

// roundTrippers are what the costs of a request are compared on: what each adds to
// bare.
func roundTrippers() map[string]http.RoundTripper {
	plain := &fixed{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}
	headers := &fixed{StatusCode: 200, Body: http.NoBody, Header: http.Header{
		"Date":                  {"Sat, 21 Nov 2026 12:00:00 GMT"},
		"X-Ratelimit-Limit":     {"1000000"},
		"X-Ratelimit-Remaining": {"900000"},
		"X-Ratelimit-Reset":     {"60"},
	}}
	many := throttle.Limit{Count: 1e9, Per: time.Second}
	return map[string]http.RoundTripper{
		"bare":    plain,
		"zero":    &Transport{Base: plain},
		"limiter": &Transport{Base: plain, Limiter: throttle.NewTokenBucket(many, nil)},
		"headers": &Transport{Base: headers, Limiter: throttle.NewTokenBucket(many, nil)},
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	req, _ := http.NewRequest("GET", "http://api.test/items", nil)
	for name, rt := range roundTrippers() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				rt.RoundTrip(req)
			}
		})
	}
}
