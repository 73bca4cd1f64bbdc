package throttleredis_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttlehttp"
	"github.com/heed-go/heed/throttleredis"
	"github.com/heed-go/heed/throttleredis/internal/redistest"
)

// A client that fills the memory of a Redis with the policy noeviction does not get past a limit:
// a Middleware without FailClosed serves no request, and a Fallback serves the share if there is
// one. When memory is available, Redis decides again.
func TestLimiter_rejectsWithoutMemory(t *testing.T) {
	s := redistest.Start(t, "--maxmemory-policy", "noeviction")
	c := connect(t, s.Addr)
	store := &throttleredis.Store{Client: c}
	ban := keyed.BanConfig{Rejections: 100, Within: 1e9, Duration: 1e9}
	serve := func(l throttle.Limiter) (served int) {
		m := &throttlehttp.Middleware{Rules: []throttlehttp.Rule{{Limiter: l, Key: throttlehttp.Header("X-Key")}}}
		h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for range 20 {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("X-Key", "new")
			if h.ServeHTTP(w, r); w.Code == http.StatusOK {
				served++
				continue
			}
			require.Equal(t, http.StatusTooManyRequests, w.Code)
			require.NotEmpty(t, w.Header().Get("Retry-After"))
		}
		return served
	}
	limit := func(name string) *throttleredis.Limiter {
		return store.TokenBucket(throttle.Limit{Name: name, Count: 5, Per: 24 * 3600e9})
	}
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "1").Err())
	for name, tt := range map[string]struct {
		l      throttle.Limiter
		served int
	}{
		"a limit":              {limit("a"), 0},
		"several limits":       {throttleredis.AllOf(limit("b"), limit("c")), 0},
		"a ban":                {store.Ban(ban, limit("d")), 0},
		"an open Fallback":     {&throttleredis.Fallback{Limiter: limit("e")}, 0},
		"AllowAll":             {&throttleredis.Fallback{Limiter: limit("f"), Secondary: throttle.AllowAll}, 0},
		"a share of Processes": {&throttleredis.Fallback{Limiter: limit("g"), Processes: 2}, 2},
	} {
		require.Equal(t, tt.served, serve(tt.l), name)
	}
	require.NoError(t, c.ConfigSet(t.Context(), "maxmemory", "0").Err())
	require.Equal(t, 5, serve(limit("a")))
}
