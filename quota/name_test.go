package quota

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A client of an API whose model is in the body of the request.
func TestWithName_separatesQuotasOfOneURL(t *testing.T) {
	tr := &Tracker{}
	now := time.Unix(1_700_000_000, 0)
	request := func(name string) *http.Request {
		req, err := http.NewRequestWithContext(WithName(t.Context(), name), http.MethodPost, "https://api.test/v1/chat", nil)
		require.NoError(t, err)
		return req
	}
	grants := func(name string) bool {
		l := tr.Demand(request(name)).Limiter
		if l == nil {
			return true
		}
		d, err := l.Reserve(t.Context(), throttle.Claim{Now: now, DryRun: true})
		require.NoError(t, err)
		return d.OK
	}
	rejected := func(name string) {
		for range holdAfter {
			req := request(name)
			demand := tr.Demand(req)
			d, err := demand.Limiter.Reserve(t.Context(), throttle.Claim{Now: now})
			require.NoError(t, err)
			require.True(t, d.OK, name)
			resp := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"60"}}}
			f := tr.Feedback(req, demand, resp, nil, now, nil)
			demand.Limiter.Report(t.Context(), throttle.Claim{Now: now}, d, f)
		}
	}
	long := strings.Repeat("deployment-", 30)
	rejected("large")
	for name, want := range map[string]bool{"large": false, "small": true, "": true, long: true} {
		require.Equal(t, want, grants(name), "after rejections of large: %.20q", name)
	}
	rejected("small") // rejections of a second one do not mean that the host limits all of them
	rejected(long)
	for name, want := range map[string]bool{"large": false, "small": false, "": true, "medium": true, long: false, long + "2": true} {
		require.Equal(t, want, grants(name), "after those of three: %.20q", name)
	}
}

func TestWithName_joinsPaths(t *testing.T) {
	tr := &Tracker{}
	limiter := func(name, path string) throttle.Limiter {
		req, err := http.NewRequestWithContext(WithName(t.Context(), name), http.MethodGet, "https://api.test"+path, nil)
		require.NoError(t, err)
		return tr.Demand(req).Limiter
	}
	req, err := http.NewRequestWithContext(WithName(t.Context(), "a"), http.MethodGet, "https://api.test/x", nil)
	require.NoError(t, err)
	resp := &http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"60"}}}
	tr.Feedback(req, tr.Demand(req), resp, nil, time.Now(), nil)
	require.Same(t, limiter("a", "/x"), limiter("a", "/y"))
	require.NotSame(t, limiter("a", "/x"), limiter("b", "/x"))
	require.NotSame(t, limiter("a", "/x"), limiter("", "/x"))
}

// Quota names that state equal limits are separate.
func TestWithName_separatesEqualLimits(t *testing.T) {
	tr := &Tracker{}
	limiter := func(name string, status int, header ...string) throttle.Limiter {
		req, err := http.NewRequestWithContext(WithName(t.Context(), name), http.MethodPost, "https://api.test/v1/chat", nil)
		require.NoError(t, err)
		d := tr.Demand(req)
		tr.Feedback(req, d, answer(status, header...), nil, time.Unix(1e9, 0), nil)
		return tr.Demand(req).Limiter
	}
	stated := []string{"RateLimit-Policy", `"default";q=100;w=60`, "RateLimit", `"default";r=99;t=55`}
	a, b, c := limiter("a", 200, stated...), limiter("b", 200, stated...), limiter("c", 200, stated...)
	require.NotSame(t, a, b)
	require.NotSame(t, b, c)
	require.NotSame(t, a, c)
	for _, l := range []throttle.Limiter{a, b, c} {
		require.NotSame(t, l, limiter("", 200), "a request without a name")
	}
}
