package heed

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/heed-go/heed/throttle"
	"github.com/stretchr/testify/require"
)

// fixedResponse returns the same response for every request and allocates nothing.
type fixedResponse http.Response

func (f *fixedResponse) RoundTrip(*http.Request) (*http.Response, error) {
	return (*http.Response)(f), nil
}

// A round is a RoundTripper whose allocations per request are measured. The difference to
// "bare" is the cost of the Transport.
type round struct {
	name   string
	allocs float64 // maximum
	rt     http.RoundTripper
}

func rounds() []round {
	many := throttle.Limit{Count: 1e9, Per: time.Second}
	limits := http.Header{
		"Date":                  {"Sat, 21 Nov 2026 12:00:00 GMT"},
		"X-Ratelimit-Limit":     {"1000000"},
		"X-Ratelimit-Remaining": {"900000"},
		"X-Ratelimit-Reset":     {"60"},
	}
	plain := &fixedResponse{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}
	withLimits := &fixedResponse{StatusCode: 200, Header: limits, Body: http.NoBody}
	return []round{
		{"bare", 0, plain},
		{"zero", 0, &Transport{Base: plain}},
		{"limiter", 0, &Transport{Base: plain, Limiter: throttle.NewTokenBucket(many)}},
		{"breaker", 0, &Transport{Base: plain, Limiter: throttle.NewTokenBucket(many), Breaker: oneBreaker(allowAll{})}},
		{"headers", 2, &Transport{Base: withLimits, Limiter: throttle.NewTokenBucket(many)}},
		{"body", 2, &Transport{Base: &bodyTransport{header: limits}, Limiter: throttle.NewTokenBucket(many)}},
	}
}

// allowAll is a Breaker that allows all requests and allocates nothing.
type allowAll struct{}

func (allowAll) Allow() (func(error), error) { return func(error) {}, nil }

// bodyTransport returns the same response with a body for every request.
type bodyTransport struct {
	header http.Header
	resp   http.Response
	text   strings.Reader
}

func (b *bodyTransport) RoundTrip(*http.Request) (*http.Response, error) {
	b.text.Reset("hello")
	b.resp = http.Response{StatusCode: 200, Header: b.header, Body: b}
	return &b.resp, nil
}

func (b *bodyTransport) Read(p []byte) (int, error) { return b.text.Read(p) }
func (b *bodyTransport) Close() error               { return nil }

func TestRoundTrip_allocates(t *testing.T) {
	req, err := http.NewRequest("GET", "http://api.test/items", nil)
	require.NoError(t, err)
	buf := make([]byte, 64)
	for _, r := range rounds() {
		n := testing.AllocsPerRun(1000, func() {
			resp, err := r.rt.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, err = resp.Body.Read(buf)
			}
			if err != io.EOF {
				t.Fatal(err)
			}
			resp.Body.Close()
		})
		t.Logf("%-8s %v allocations", r.name, n)
		require.True(t, racing || n <= r.allocs, "%s: %v allocations, want at most %v", r.name, n, r.allocs)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	req, _ := http.NewRequest("GET", "http://api.test/items", nil)
	for _, r := range rounds() {
		b.Run(r.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				resp, _ := r.rt.RoundTrip(req)
				resp.Body.Close()
			}
		})
	}
}
