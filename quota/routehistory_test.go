package quota

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
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

// A route is healthy if 10 of its latest 20 responses were a 2xx.
func TestEndpoint_knowsHealthyRoutes(t *testing.T) {
	const other, named, write = 'o', 'n', 'w' // a 200 of another route, of a quota name, or to a write
	for _, tt := range []struct {
		name      string
		responses string // 2: 200, 0: 204, 3: 304, 4: 404, f: 403, 9: 429, or one of the above
		healthy   bool
	}{
		{"none", "", false},
		{"nine", "222222222", false},
		{"ten", "2222222222", true},
		{"ten of any 2xx", "2020202020", true},
		{"ten that are not successful", "4444444444", false},
		{"304 is no 2xx", "2222222223", false},
		{"failures first", "4444444444" + "2222222222", true},
		{"failures last", "2222222222" + "4444444444", true},
		{"a failure too many", "2222222222" + "44444444444", false},
		{"403s", "22222222222222222222" + "ffffffffff", true},
		{"a 403 too many", "22222222222222222222" + "fffffffffff", false},
		{"only the latest 20 count", strings.Repeat("2", 100) + "fffffffffff", false},
		{"healthy again", strings.Repeat("f", 20) + "2222222222", true},
		{"a rejection counts", "2222222222" + "99999999999", false},
		{"another route", "222222222" + strings.Repeat(string(other), 20), false},
		{"another route fails", "2222222222" + strings.Repeat("m", 20), true},
		{"a named quota", "222222222" + strings.Repeat(string(named), 20), false},
		{"writes", "222222222" + strings.Repeat(string(write), 20), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var tr Tracker
			statuses := map[rune]int{'0': 204, '3': 304, '4': 404, 'f': 403, '9': 429, 'm': 403}
			for i, r := range tt.responses {
				req := request(t, fmt.Sprintf("https://api.test/users/%d", i)) // one route
				switch r {
				case other, 'm':
					req = request(t, issues)
				case named:
					req = req.WithContext(WithName(t.Context(), "gpt"))
				case write:
					req.Method = http.MethodPut
				}
				status := 200
				if s, ok := statuses[r]; ok {
					status = s
				}
				tr.endpointOf(req).recordResponse(req, status)
			}
			req := request(t, users)
			require.Equal(t, tt.healthy, tr.endpointOf(req).recordResponse(req, 403))
		})
	}
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

// The latest 32 routes are remembered. One that never succeeded takes no place.
func TestEndpoint_remembersTheLatestRoutes(t *testing.T) {
	var tr Tracker
	ep := tr.endpointOf(request(t, users))
	record := func(n, status int) bool { return ep.recordResponse(request(t, "https://api.test/"+slug(n)), status) }
	for n := range maxHistories {
		for range 10 {
			record(n, 200)
		}
	}
	for n := range 2 * maxHistories {
		record(1000+n, 404)
	}
	for n := range maxHistories {
		require.True(t, record(n, 404), n)
	}
	for range 10 {
		record(2000, 200)
	}
	require.True(t, record(2000, 404))
	require.True(t, record(1, 404))
	require.False(t, record(0, 404), "the route that began first")
}

// Of responses that arrive together on several goroutines, each one counts.
func TestEndpoint_recordsResponsesConcurrently(t *testing.T) {
	var tr Tracker
	req := request(t, users)
	ep := tr.endpointOf(req)
	ep.recordResponse(req, 200)
	inParallel := func(each, status int) int64 {
		var wg sync.WaitGroup
		var healthy atomic.Int64
		start := make(chan struct{})
		for range 4 {
			wg.Go(func() {
				<-start
				for range each {
					if ep.recordResponse(req, status) {
						healthy.Add(1)
					}
				}
			})
		}
		close(start)
		wg.Wait()
		return healthy.Load()
	}
	inParallel(5, 200)
	for range 1000 {
		require.EqualValues(t, 11, inParallel(5, 403), "until 11 of the latest 20 are 403s")
		require.EqualValues(t, 10, inParallel(5, 200), "the first 10 are needed")
	}
}

func TestEndpoint_recordResponseDoesNotAllocate(t *testing.T) {
	var tr Tracker
	ep := tr.endpointOf(request(t, users))
	for _, url := range []string{users, "https://api.test/", "https://api.test/" + strings.Repeat("a-long-segment-of-words/", 20)} {
		req := request(t, url)
		require.Zero(t, testing.AllocsPerRun(100, func() { ep.recordResponse(req, 200) }), url)
	}
}
