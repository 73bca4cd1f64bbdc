package throttlehttp_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/heed-go/heed/quota"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/stretchr/testify/require"
)

// wide returns limits that are wide enough for any benchmark.
func wide() throttle.Limiter { return throttle.NewTokenBucket(throttle.PerSecond(1e9), nil) }
func wideForEach() throttle.Limiter {
	return throttle.NewKeyedBuckets(throttle.Buckets{Limit: throttle.PerSecond(1e6)}, nil)
}

var measured = map[string]struct {
	m    throttlehttp.Middleware
	want float64 // allocations
}{
	"nothing": {throttlehttp.Middleware{}, 1},
	"limiter": {throttlehttp.Middleware{Limiter: wide()}, 3}, // the passage, and what quota.Write makes: a string and a list of values
	"address": {throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: wideForEach(), Key: throttlehttp.IP{}.Key}}}, 4},
	"all dialects": {throttlehttp.Middleware{
		Dialect: quota.XRateLimit | quota.XResetAfter | quota.Draft03 | quota.Draft10,
		Rules:   []throttlehttp.Rule{{Limiter: wideForEach(), Key: throttlehttp.IP{}.Key}},
	}, 4},
	"draft 10": {throttlehttp.Middleware{
		Dialect: quota.Draft10,
		Rules:   []throttlehttp.Rule{{Limiter: wide()}, {Limiter: wideForEach(), Key: throttlehttp.IP{}.Key}},
	}, 4},
	"four limits": {throttlehttp.Middleware{Limiter: wide(), Rules: []throttlehttp.Rule{{Limiter: wide()}, {Limiter: wide()}, {Limiter: wide()}}}, 3},
	"hidden":      {throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: wide(), Hidden: true}}}, 1},
	"in flight":   {throttlehttp.Middleware{Limiter: throttle.NewInFlight(throttle.Capacity{Count: 9}, nil)}, 3},
	"in line":     {throttlehttp.Middleware{Limiter: wide(), Waiter: new(throttle.Waiter)}, 3},
	"settled":     {throttlehttp.Middleware{Limiter: wide(), Rules: []throttlehttp.Rule{{Limiter: wide(), Settle: throttlehttp.OnStatus(401)}}}, 5}, // and the watch, and a request with its context
	"refused":     {throttlehttp.Middleware{Limiter: decide{d: throttle.Decision{Wait: time.Second, Limit: 9}}}, 7},
}

func TestMiddleware_allocates(t *testing.T) {
	for name, tt := range measured {
		h := tt.m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
		got := testing.AllocsPerRun(1000, func() {
			clear(w.Header())
			w.Body.Reset()
			h.ServeHTTP(w, r)
		})
		want := tt.want
		if racing {
			want += 5
		}
		require.LessOrEqual(t, got, want, name)
	}
}

func BenchmarkMiddleware(b *testing.B) {
	for name, tt := range measured {
		h := tt.m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		b.Run(name, func(b *testing.B) {
			r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
			b.ReportAllocs()
			for b.Loop() {
				clear(w.Header())
				w.Body.Reset()
				h.ServeHTTP(w, r)
			}
		})
	}
}
