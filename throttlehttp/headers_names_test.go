package throttlehttp_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/headers"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/keyed"
	"github.com/heed-go/heed/throttlehttp"
)

// TestMiddleware_statesNoWindowOfABan checks the headers of a key that is banned for longer than the window
// of its limit. (Review L3: "ban";r=0;t=3600 with the policy "ban";q=2;w=60.)
func TestMiddleware_statesNoWindowOfABan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := throttle.NewFixedWindow(throttle.FixedWindowConfig{Name: "a minute", Count: 2, Per: time.Minute})
		ban := keyed.NewBan(limit, keyed.BanConfig{Rejections: 2, Within: time.Minute, Duration: time.Hour})
		m := &throttlehttp.Middleware{Limiter: ban, Dialect: headers.XRateLimit | headers.Draft10}
		h := m.Handler(ok)
		for _, want := range []http.Header{
			{"Ratelimit": {`"a minute";r=1;t=60`}, "Ratelimit-Policy": {`"a minute";q=2;w=60`}, "X-Ratelimit-Limit": {"2"}},
			{"Ratelimit": {`"a minute";r=0;t=60`}, "Ratelimit-Policy": {`"a minute";q=2;w=60`}, "X-Ratelimit-Limit": {"2"}},
			{"Ratelimit": {`"a minute";r=0;t=60`}, "Ratelimit-Policy": {`"a minute";q=2;w=60`}, "X-Ratelimit-Limit": {"2"}},
			{"Ratelimit": {`"ban";r=0;t=3600`}, "X-Ratelimit-Limit": {"2"}},
		} {
			got := serveGet(h).Header
			for _, name := range []string{"Ratelimit", "Ratelimit-Policy", "X-Ratelimit-Limit"} {
				require.Equal(t, want[name], got[name], name)
			}
		}
	})
}

// TestMiddleware_namesOfLimitsAreDistinct checks how headers and problem details name limits. (Review L3: é
// and ü were both "??", and two limits of one name were both stated.)
func TestMiddleware_namesOfLimitsAreDistinct(t *testing.T) {
	type limit struct {
		name  string
		count int64
	}
	for name, tt := range map[string]struct {
		limits []limit
		want   string
	}{
		"ASCII":         {[]limit{{"a b~", 9}}, `"a b~";r=8;t=1`},
		"others":        {[]limit{{"é", 9}, {"ü\n", 7}}, `"%C3%A9";r=8;t=1, "%C3%BC%0A";r=6;t=1`},
		"the same name": {[]limit{{"a", 9}, {"a", 7}, {"b", 5}, {"a", 8}}, `"a";r=6;t=1, "b";r=4;t=1`},
	} {
		m := &throttlehttp.Middleware{Dialect: headers.Draft10}
		for _, l := range tt.limits {
			m.Rules = append(m.Rules, throttlehttp.Rule{Limiter: throttle.NewTokenBucket(throttle.Limit{Name: l.name, Count: l.count, Per: time.Second})})
		}
		require.Equal(t, tt.want, serveGet(m.Handler(ok)).Header.Get("RateLimit"), name)
	}
	m := &throttlehttp.Middleware{Dialect: headers.Draft10, Limiter: fixedDecision{d: throttle.Decision{Policy: "é", Limit: 5, Per: time.Hour, Wait: time.Second}}}
	resp := serveGet(m.Handler(ok))
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, `"%C3%A9";q=5;w=3600`, resp.Header.Get("RateLimit-Policy"))
	require.Contains(t, string(body), `"violated-policies": ["%C3%A9"]`)
}
