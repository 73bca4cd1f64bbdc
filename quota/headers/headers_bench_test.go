package headers

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
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

// githubFullHeader returns all rate-limit headers of api.github.com, and the Date.
func githubFullHeader() http.Header {
	h := githubHeader()
	h["X-Ratelimit-Used"], h["X-Ratelimit-Resource"] = []string{"128"}, []string{"core"}
	return h
}

// githubResponseHeader returns all headers of a response of api.github.com.
func githubResponseHeader() http.Header {
	h := githubFullHeader()
	for _, name := range strings.Fields(`Server Content-Type Cache-Control Vary Etag Last-Modified X-Poll-Interval
		X-Github-Media-Type X-Github-Api-Version-Selected X-Oauth-Scopes X-Accepted-Oauth-Scopes Access-Control-Expose-Headers
		Access-Control-Allow-Origin Strict-Transport-Security X-Frame-Options X-Content-Type-Options X-Xss-Protection
		Referrer-Policy Content-Security-Policy X-Github-Request-Id`) {
		h[name] = []string{"x"}
	}
	return h
}

// headerWithoutLimits returns the headers of a usual response that states no limits.
func headerWithoutLimits() http.Header {
	return http.Header{
		"Date": {"Tue, 14 Sep 2021 20:43:15 GMT"}, "Content-Type": {"application/json"}, "Content-Length": {"532"},
		"Server": {"nginx"}, "Cache-Control": {"no-cache"}, "Etag": {`"33a64df5"`}, "Vary": {"Accept-Encoding"},
		"X-Request-Id": {"7b2c"}, "Strict-Transport-Security": {"max-age=63072000"}, "X-Acme-Region": {"eu"},
	}
}

// headerOfMany returns n headers about other things, beside those of a limit.
func headerOfMany(n int) http.Header {
	h := githubHeader()
	for i := range n {
		h[fmt.Sprintf("X-Acme-Region-%c%c%c", 'a'+i/676, 'a'+i/26%26, 'a'+i%26)] = []string{"1"}
	}
	return h
}

// A naiveReport is what naiveParse reads.
type naiveReport struct {
	limit, remaining, used int64
	resource               string
	reset, retryAfter      time.Duration
}

// naiveParse reads the headers of GitHub and Retry-After as clients usually do, with
// http.Header.Get, strconv and http.ParseTime. It is the measure of the benchmarks.
func naiveParse(h http.Header, received time.Time) *naiveReport {
	var r naiveReport
	r.limit, _ = strconv.ParseInt(h.Get("X-RateLimit-Limit"), 10, 64)
	r.remaining, _ = strconv.ParseInt(h.Get("X-RateLimit-Remaining"), 10, 64)
	r.used, _ = strconv.ParseInt(h.Get("X-RateLimit-Used"), 10, 64)
	r.resource = h.Get("X-RateLimit-Resource")
	if unix, err := strconv.ParseInt(h.Get("X-RateLimit-Reset"), 10, 64); err == nil {
		now, err := http.ParseTime(h.Get("Date"))
		if err != nil {
			now = received
		}
		r.reset = time.Unix(unix, 0).Sub(now)
	}
	if v := h.Get("Retry-After"); v != "" {
		if seconds, err := strconv.ParseInt(v, 10, 64); err == nil {
			r.retryAfter = time.Duration(seconds) * time.Second
		} else if at, err := http.ParseTime(v); err == nil {
			r.retryAfter = at.Sub(received)
		}
	}
	return &r
}

// BenchmarkParse measures Parse beside naiveParse. Both run by turns. The least time of many
// short samples counts, because other processes can only make a sample longer:
//
//	go test -run xxx -bench BenchmarkParse ./quota/headers
func BenchmarkParse(b *testing.B) {
	for _, c := range []struct {
		name   string
		status int
		header http.Header
	}{
		{"retryAfter", 429, http.Header{"Retry-After": {"30"}}},
		{"github", 200, githubHeader()},
		{"githubFull", 200, githubFullHeader()},
		{"githubResponse", 200, githubResponseHeader()},
		{"noLimits", 200, headerWithoutLimits()},
		{"1500others", 200, headerOfMany(1500)},
	} {
		b.Run(c.name, func(b *testing.B) {
			now := time.Unix(1631652195, 0)
			ours := func() { Parse(c.status, c.header, now) }
			naive := func() { sink = naiveParse(c.header, now) }
			const perSample = 100
			bestOurs, bestNaive := time.Hour, time.Hour
			for b.Loop() {
				bestOurs = min(bestOurs, timeOf(perSample, ours))
				bestNaive = min(bestNaive, timeOf(perSample, naive))
			}
			b.ReportMetric(0, "ns/op") // of both
			b.ReportMetric(float64(bestOurs)/perSample, "ns/parse")
			b.ReportMetric(float64(bestNaive)/perSample, "ns/naive")
			b.ReportMetric(float64(bestOurs)/float64(bestNaive), "ratio")
			b.ReportMetric(testing.AllocsPerRun(100, ours), "allocs/parse")
		})
	}
}

var sink *naiveReport

// timeOf returns the time of n calls of f.
func timeOf(n int, f func()) time.Duration {
	start := time.Now()
	for range n {
		f()
	}
	return time.Since(start)
}
