package quota

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// feedback returns what tr concludes from a response to a request that no limit delays.
func feedback(t testing.TB, tr *Tracker, req *http.Request, resp *http.Response) throttle.Feedback {
	t.Helper()
	m := tr.Demand(req)
	if m.Limiter == nil {
		return tr.Feedback(req, m, resp, nil, time.Now(), nil)
	}
	d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
	require.NoError(t, err)
	f := tr.Feedback(req, m, resp, nil, time.Now(), nil)
	if d.OK {
		throttle.Observe(t.Context(), m.Limiter, throttle.Claim{}, d, f)
	}
	return f
}

// Only a 403 that states nothing may be retried, and only where the Tracker estimates.
func TestTracker_403sThatAreFinal(t *testing.T) {
	bare := answer(403)
	for name, tt := range map[string]struct {
		mode  Mode
		resp  *http.Response
		retry bool
	}{
		"bare":              {Full, bare, true},
		"stated only":       {StatedOnly, bare, false},
		"disabled":          {Disabled, bare, false},
		"states a wait":     {Full, answer(403, "Retry-After", "1"), false},
		"states a limit":    {Full, answer(403, "X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset", "9"), false},
		"another rejection": {Full, answer(429), false},
		"unavailable":       {Full, answer(503), false},
		"not found":         {Full, answer(404), false},
		"success":           {Full, answer(200), false},
	} {
		tr := &Tracker{Mode: tt.mode}
		for range 20 {
			feedback(t, tr, request(t, users), answer(200))
		}
		require.Equal(t, tt.retry, feedback(t, tr, request(t, users), tt.resp).RetryOnce, name)
	}
	var tr Tracker
	for range 20 {
		feedback(t, &tr, request(t, users), answer(200))
	}
	require.False(t, tr.Feedback(request(t, users), throttle.Demand{}, nil, context.DeadlineExceeded, time.Now(), nil).RetryOnce, "no response")
	tr.Forget(request(t, users))
	require.False(t, feedback(t, &tr, request(t, users), bare).RetryOnce, "forgotten")
}

// Routes are remembered whatever limits the host has: none, stated ones, or one for each of many
// routes.
func TestTracker_remembersRoutesOfAllHosts(t *testing.T) {
	for name, success := range map[string]func(i int) *http.Response{
		"unlimited":    func(int) *http.Response { return answer(200) },
		"stated":       func(i int) *http.Response { return quotaOf("core", "5000", fmt.Sprint(4999-i), "60") },
		"small quotas": func(i int) *http.Response { return quotaOf(fmt.Sprint(i%64), "5000", fmt.Sprint(4999-i), "60") },
	} {
		var tr Tracker
		for i := range 300 {
			feedback(t, &tr, request(t, "https://api.test/"+slug(i%64)), success(i))
			feedback(t, &tr, request(t, users), success(0))
		}
		if name == "unlimited" {
			require.Nil(t, tr.Demand(request(t, users)).Limiter)
		}
		require.True(t, feedback(t, &tr, request(t, users), answer(403)).RetryOnce, name)
	}
}
