package throttlehttp_test

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// ampleLimit returns a limiter that rejects no request of a benchmark.
func ampleLimit() throttle.Limiter { return throttle.NewTokenBucket(throttle.PerSecond(1e9)) }
func ampleLimitPerKey() throttle.Limiter {
	return keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerSecond(1e6)})
}

var allocCases = map[string]struct {
	m    throttlehttp.Middleware
	want float64 // allocations
}{
	"nothing": {throttlehttp.Middleware{}, 1},
	"limiter": {throttlehttp.Middleware{Limiter: ampleLimit()}, 3}, // context.WithoutCancel, and in headers.Write a string and a list of values
	"address": {throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: ampleLimitPerKey(), Key: throttlehttp.IP{}.Key}}}, 4},
	"all dialects": {throttlehttp.Middleware{
		Dialect: headers.XRateLimit | headers.XResetAfter | headers.Draft03 | headers.Draft10,
		Rules:   []throttlehttp.Rule{{Limiter: ampleLimitPerKey(), Key: throttlehttp.IP{}.Key}},
	}, 4},
	"draft 10": {throttlehttp.Middleware{
		Dialect: headers.Draft10,
		Rules:   []throttlehttp.Rule{{Limiter: ampleLimit()}, {Limiter: ampleLimitPerKey(), Key: throttlehttp.IP{}.Key}},
	}, 4},
	"four limits": {throttlehttp.Middleware{Limiter: ampleLimit(), Rules: []throttlehttp.Rule{{Limiter: ampleLimit()}, {Limiter: ampleLimit()}, {Limiter: ampleLimit()}}}, 3},
	"hidden":      {throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: ampleLimit(), Hidden: true}}}, 1},
	"in flight":   {throttlehttp.Middleware{Limiter: throttle.NewConcurrency(throttle.ConcurrencyConfig{Count: 9})}, 3},
	"queued":      {throttlehttp.Middleware{Limiter: ampleLimit(), Queue: new(queue.Queue)}, 3},
	"settled":     {throttlehttp.Middleware{Limiter: ampleLimit(), Rules: []throttlehttp.Rule{{Limiter: ampleLimit(), FinalCost: throttlehttp.OnStatus(401)}}}, 5}, // and the responseRecorder, and a request with its context
	"rejected":    {throttlehttp.Middleware{Limiter: fixedDecision{d: throttle.Decision{Policy: "limit", Wait: time.Second, Limit: 9}}}, 4},
}

func TestMiddleware_allocates(t *testing.T) {
	for name, tt := range allocCases {
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

// TestMiddleware_allocatesLittleForRejections checks the bytes that a rejection allocates beside the
// response itself. (Issue 26: 555 B before, go-chi/httprate 216.)
func TestMiddleware_allocatesLittleForRejections(t *testing.T) {
	if racing {
		t.Skip("the race detector allocates")
	}
	h := (&throttlehttp.Middleware{Rules: []throttlehttp.Rule{{
		Limiter: keyed.NewBuckets(keyed.BucketsConfig{Limit: throttle.PerHour(1)}), Key: throttlehttp.IP{}.Key,
	}}}).Handler(ok)
	r, w := httptest.NewRequest(http.MethodGet, "/", nil), httptest.NewRecorder()
	serve := func() {
		clear(w.Header())
		w.Body.Reset()
		h.ServeHTTP(w, r)
	}
	serve()
	const n = 5000
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range n {
		serve()
	}
	runtime.ReadMemStats(&after)
	require.Contains(t, w.Body.String(), throttlehttp.QuotaExceeded)
	require.LessOrEqual(t, (after.TotalAlloc-before.TotalAlloc)/n, uint64(216))
}

func BenchmarkMiddleware(b *testing.B) {
	for name, tt := range allocCases {
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
