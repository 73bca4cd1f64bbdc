package quota

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// routeURL returns the URL of one of up to 676 routes.
func routeURL(i int) string { return fmt.Sprintf("https://api.test/route%c%c", 'a'+i/26, 'a'+i%26) }

// namedServer is a server with a quota of limit requests per window for each route. Its responses
// state the name of the quota and what is left of it.
type namedServer struct {
	limit    int
	window   time.Duration
	end      map[int]time.Time
	used     map[int]int
	rejected int
}

func newNamedServer(limit int, window time.Duration) *namedServer {
	return &namedServer{limit: limit, window: window, end: make(map[int]time.Time), used: make(map[int]int)}
}

func (s *namedServer) answer(route int) *http.Response {
	now, status := time.Now(), http.StatusOK
	if !now.Before(s.end[route]) {
		s.end[route], s.used[route] = now.Add(s.window), 0
	}
	if s.used[route] == s.limit {
		status = http.StatusTooManyRequests
		s.rejected++
	} else {
		s.used[route]++
	}
	left, reset := s.limit-s.used[route], s.end[route].Sub(now).Seconds()
	return answer(status, "X-RateLimit-Resource", "quota"+strconv.Itoa(route), "X-RateLimit-Limit", strconv.Itoa(s.limit),
		"X-RateLimit-Remaining", strconv.Itoa(left), "X-RateLimit-Reset-After", strconv.FormatFloat(reset, 'f', 3, 64))
}

// Each of 40 and of 200 named quotas of one host admits what the server admits, in each window: a
// request that the server would accept is admitted, and none is rejected.
func TestTracker_hundredsOfNamedQuotas(t *testing.T) {
	for _, tt := range []struct{ routes, limit int }{{40, 5}, {200, 1}, {200, 3}} {
		synctest.Test(t, func(t *testing.T) {
			tr, s := seeded(1), newNamedServer(tt.limit, time.Minute)
			for window := range 3 {
				for i := range tt.limit {
					for route := range tt.routes {
						d := ask(t, tr, routeURL(route), s.answer(route))
						if d.OK || d.Wait == 0 {
							continue
						}
						time.Sleep(d.Wait) // the last unit of a quota that is not a small one yet
						require.True(t, ask(t, tr, routeURL(route), s.answer(route)).OK, "window %d, request %d of route %d", window, i, route)
					}
				}
				for route := range tt.routes {
					require.False(t, mayAsk(t, tr, routeURL(route)), "window %d, %d routes of %d: route %d is used up", window, tt.routes, tt.limit, route)
				}
				time.Sleep(2 * time.Minute)
			}
			require.LessOrEqual(t, endpointIn(tr).memory.Load(), int64(maxBytes))
			snapshot := tr.Snapshot(0)
			require.Len(t, snapshot.Shown, 1)
			require.LessOrEqual(t, len(snapshot.Shown[0].Quotas), maxSmallShown+maxQuotas+1)
		})
	}
}

func endpointIn(tr *Tracker) *endpoint { return tr.recent.Load() }

// small returns a Tracker whose host has small quotas, the server, and the route of one.
func small(t *testing.T, limit int) (tr *Tracker, s *namedServer, route int) {
	tr, s = seeded(1), newNamedServer(limit, time.Minute)
	for route = range 2 * manyNames {
		require.True(t, ask(t, tr, routeURL(route), s.answer(route)).OK)
	}
	require.IsType(t, &smallQuota{}, tr.Demand(request(t, routeURL(route))).Limiter)
	return tr, s, route
}

func TestSmallQuota_countsRequestsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _, route := small(t, 3)
		m := tr.Demand(request(t, routeURL(route)))
		var granted []throttle.Decision
		for range 5 {
			d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
			require.NoError(t, err)
			if d.OK {
				granted = append(granted, d)
			}
		}
		require.Len(t, granted, 2, "one of three was used")
		m.Limiter.Cancel(t.Context(), throttle.Claim{}, granted[0])
		d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.True(t, d.OK, "a request that was not sent takes nothing")
		_, err = m.Limiter.Reserve(t.Context(), throttle.Claim{Cost: -1})
		require.Error(t, err)
	})
}

// After the reset one request tests whether the units have returned.
func TestSmallQuota_probesAfterTheReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, s, route := small(t, 1)
		req := request(t, routeURL(route))
		m := tr.Demand(req)
		d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.False(t, d.OK)
		require.True(t, d.ServerImposed)
		require.Equal(t, time.Minute, d.Wait)
		time.Sleep(d.Wait)
		probe, _ := m.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.True(t, probe.OK)
		second, _ := m.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.False(t, second.OK)
		require.Zero(t, second.Wait, "the response to the probe decides")
		throttle.Observe(context.Background(), m.Limiter, throttle.Claim{}, probe, tr.Feedback(req, m, s.answer(route), nil, time.Now(), nil))
		require.False(t, mayAsk(t, tr, routeURL(route)), "the probe used the only unit")
	})
}

// Rejections hold a small quota for the stated time, a rejection of all routes holds all, and Forget
// releases them.
func TestSmallQuota_rejections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _, route := small(t, 100)
		ask(t, tr, routeURL(route), answer(http.StatusTooManyRequests, "Retry-After", "30"))
		require.False(t, mayAsk(t, tr, routeURL(route)))
		require.True(t, mayAsk(t, tr, routeURL(route-1)), "another quota")
		ep := endpointIn(tr)
		ep.holdAll(nil, &throttle.Feedback{Now: time.Now(), Outcome: throttle.Throttled, RetryAfter: time.Hour})
		require.False(t, mayAsk(t, tr, routeURL(route-1)))
		m := tr.Demand(request(t, routeURL(route)))
		tr.Forget(request(t, routeURL(route)))
		d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		require.True(t, d.OK, "a request that waited is admitted")
	})
}

// A response that states another name assigns the route to the quota of that name.
func TestSmallQuota_routesShareNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, s, route := small(t, 10)
		other := route - 1
		ask(t, tr, routeURL(route), s.answer(other))
		require.Same(t, tr.Demand(request(t, routeURL(other))).Limiter, tr.Demand(request(t, routeURL(route))).Limiter)
	})
}

// A rejection that states no time is not followed by a request in each round trip, and an end that is
// a year away is tested after Tracker.MaxHold.
func TestSmallQuota_boundsProbes(t *testing.T) {
	for name, tt := range map[string]struct {
		header []string
		wait   time.Duration
	}{
		"no time":  {nil, basePause},
		"a year":   {[]string{"Retry-After", "31536000"}, defaultHold},
		"a minute": {[]string{"Retry-After", "60"}, time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			tr, _, route := small(t, 100)
			time.Sleep(2 * time.Minute) // the window is over
			require.True(t, ask(t, tr, routeURL(route), answer(http.StatusTooManyRequests, tt.header...)).OK, name)
			time.Sleep(tt.wait - time.Millisecond)
			require.False(t, mayAsk(t, tr, routeURL(route)), name)
			time.Sleep(time.Millisecond)
			require.True(t, mayAsk(t, tr, routeURL(route)), name)
		})
	}
}
