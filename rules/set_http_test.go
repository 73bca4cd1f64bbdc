package rules_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/rules"
	"github.com/heed-go/heed/rules/monitor"
	"github.com/heed-go/heed/rules/source"
	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
	"github.com/heed-go/heed/throttlehttp"
)

// sharedFile is a file for a client and a server.
const sharedFile = `
domain: api
values:
  user: {header: X-User}
descriptors:
  - key: user
    rate_limit: {requests_per_unit: 3, unit: second, algorithm: token_bucket, burst: 1}
limits:
  - name: search
    match: GET api.example.com/search/{id}
    key: user
    rate_limit: {requests_per_unit: 1, unit: second, burst: 1}
`

// roundTripFunc is an http.RoundTripper.
type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// request returns a request of a user.
func request(t *testing.T, user, url string) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	r.Header.Set("X-User", user)
	return r
}

// TestSet_drivesTheTransport sends requests under the limits of the file.
func TestSet_drivesTheTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := rules.Parse([]byte(sharedFile), rules.Config{})
		require.NoError(t, err)
		waiter := &queue.Queue{}
		defer waiter.Close()
		start, sent := time.Now(), map[string][]time.Duration{}
		tr := &heed.Transport{
			Limits: set.Limits,
			Queue:  waiter,
			Base: roundTripFunc(func(r *http.Request) (*http.Response, error) {
				key := r.Header.Get("X-User") + r.URL.Path
				sent[key] = append(sent[key], time.Since(start).Round(time.Millisecond))
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: r}, nil
			}),
		}
		for range 3 {
			for _, r := range []*http.Request{
				request(t, "ann", "http://api.example.com/search/7"), request(t, "ann", "http://api.example.com/other"),
			} {
				resp, err := tr.RoundTrip(r)
				require.NoError(t, err)
				resp.Body.Close()
			}
		}
		require.Equal(t, []time.Duration{0, time.Second, 2 * time.Second}, sent["ann/search/7"])
		third := 333 * time.Millisecond
		require.Equal(t, []time.Duration{third, time.Second + third, 2*time.Second + third}, sent["ann/other"])
	})
}

// TestSet_drivesTheMiddleware rejects requests under the limits of the same file.
func TestSet_drivesTheMiddleware(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := rules.Parse([]byte(sharedFile), rules.Config{})
		require.NoError(t, err)
		m := &throttlehttp.Middleware{Limits: set.Limits}
		h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		status := func(user, url string) int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request(t, user, url))
			return w.Code
		}
		require.Equal(t, 200, status("ann", "http://api.example.com/search/7"))
		time.Sleep(time.Second / 2)
		require.Equal(t, 429, status("ann", "http://api.example.com/search/8"))
		require.Equal(t, 200, status("ann", "http://api.example.com/other"))
		require.Equal(t, 200, status("bob", "http://api.example.com/search/7"))
		time.Sleep(time.Second / 2)
		require.Equal(t, 200, status("ann", "http://api.example.com/search/7/"))
	})
}

// TestSet_limitsInShadowModeAreNotStated checks that responses do not state a limit in shadow mode,
// which clients would obey, also if more limits apply than a ticket has demands.
func TestSet_limitsInShadowModeAreNotStated(t *testing.T) {
	const trial, limit = "- {name: %s, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}\n", "- {name: %s, rate_limit: {unit: hour, requests_per_unit: %d}}\n"
	for name, tt := range map[string]struct {
		limits string
		want   []string
	}{
		"one of two":    {fmt.Sprintf(trial, "a") + fmt.Sprintf(limit, "b", 9), []string{"8", "7", "6"}},
		"all":           {fmt.Sprintf(trial, "a"), []string{"", "", ""}},
		"first of five": {fmt.Sprintf(trial, "a") + fmt.Sprintf(limit, "b", 9) + fmt.Sprintf(limit, "c", 9) + fmt.Sprintf(limit, "d", 9) + fmt.Sprintf(limit, "e", 8), []string{"7", "6", "5"}},
		"fourth":        {fmt.Sprintf(limit, "b", 9) + fmt.Sprintf(limit, "c", 9) + fmt.Sprintf(limit, "d", 9) + fmt.Sprintf(trial, "a") + fmt.Sprintf(limit, "e", 8), []string{"7", "6", "5"}},
		"fifth":         {fmt.Sprintf(limit, "b", 9) + fmt.Sprintf(limit, "c", 9) + fmt.Sprintf(limit, "d", 9) + fmt.Sprintf(limit, "e", 8) + fmt.Sprintf(trial, "a"), []string{"7", "6", "5"}},
		"five":          {fmt.Sprintf(trial, "a") + fmt.Sprintf(trial, "b") + fmt.Sprintf(trial, "c") + fmt.Sprintf(trial, "d") + fmt.Sprintf(trial, "e"), []string{"", "", ""}},
	} {
		set, err := rules.Parse([]byte("domain: d\nlimits:\n"+tt.limits), rules.Config{})
		require.NoError(t, err)
		m := &throttlehttp.Middleware{Limits: set.Limits}
		h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		for _, want := range tt.want {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, request(t, "ann", "http://api.example.com/"))
			require.Equal(t, http.StatusOK, w.Code, name)
			require.Equal(t, want, w.Header().Get("X-RateLimit-Remaining"), name)
		}
	}
}

// TestSet_limitsInShadowModeReturnUnits checks that limits in shadow mode that are combined with
// others get their units back when another limit rejects the request.
func TestSet_limitsInShadowModeReturnUnits(t *testing.T) {
	counts := &monitor.Registry{}
	text := "domain: d\nlimits:\n"
	for _, name := range []string{"a", "b", "c"} {
		text += "- {name: " + name + ", rate_limit: {unit: hour, requests_per_unit: 9}}\n"
	}
	text += "- {name: d, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}\n- {name: e, rate_limit: {unit: hour, requests_per_unit: 1}}\n"
	looked := &source.Source{Lookup: func(context.Context, string) (throttle.Limit, error) { return throttle.PerHour(2), nil }}
	last := &source.Source{Lookup: func(context.Context, string) (throttle.Limit, error) { return throttle.PerHour(1), nil }}
	set, err := rules.Parse([]byte(text), rules.Config{DecisionHook: counts, Build: func(l *rules.Limit) (throttle.Limiter, error) {
		switch l.Name {
		case "d":
			return looked, nil // what it does with Unused depends on Decision.Limit
		case "e":
			return last, nil // may block as looked may, so that it is asked after it
		}
		return nil, nil
	}})
	require.NoError(t, err)
	for want := range 4 {
		var ticket queue.Ticket
		require.NoError(t, set.Limits(request(t, "ann", "http://api.example.com/"), &ticket))
		d, err := ticket.Reserve(t.Context(), time.Time{})
		require.NoError(t, err)
		require.Equal(t, want == 0, d.OK)
		ticket.Report(t.Context(), throttle.Feedback{})
	}
	d, err := looked.Reserve(t.Context(), throttle.Claim{DryRun: true})
	require.NoError(t, err)
	require.EqualValues(t, 1, d.Remaining)
	require.EqualValues(t, 3, counts.Stats(set.All()[3]).Snapshot().Cancelled)
}

// panicHook is a DecisionHook that panics when a claim is granted.
type panicHook struct{ monitor.Registry }

func (*panicHook) Decided(_ *rules.Limit, _ throttle.Claim, d throttle.Decision) {
	if d.OK {
		panic("hook")
	}
}

// TestSet_panicOfAHookTakesNoUnits checks that a hook that panics for each request does not use up a
// limit on concurrency.
func TestSet_panicOfAHookTakesNoUnits(t *testing.T) {
	for name, q := range map[string]*queue.Queue{"rejecting": nil, "delaying": {MaxWait: time.Second}} {
		set, err := rules.Parse([]byte("domain: d\nlimits: [{name: n, rate_limit: {concurrency: 2}}]"), rules.Config{DecisionHook: &panicHook{}})
		require.NoError(t, err)
		m := &throttlehttp.Middleware{Limits: set.Limits, Queue: q}
		h := m.Handler(http.NotFoundHandler())
		for range 3 {
			require.PanicsWithValue(t, "hook", func() { h.ServeHTTP(httptest.NewRecorder(), request(t, "ann", "http://api.example.com/")) }, name)
		}
	}
}
