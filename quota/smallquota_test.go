package quota

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/quota/internal/model"
	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

// routeURL returns the URL of one of up to 676 routes.
func routeURL(i int) string { return fmt.Sprintf("https://api.test/route%c%c", 'a'+i/26, 'a'+i%26) }

// namedServer is a server with a quota of limit requests per window for each route. Its responses
// state the name of the quota and what is left of it.
type namedServer struct {
	limit    int
	window   time.Duration
	prefix   string // of the names
	end      map[int]time.Time
	used     map[int]int
	rejected int
}

func newNamedServer(limit int, window time.Duration) *namedServer {
	return &namedServer{limit: limit, window: window, prefix: "quota", end: make(map[int]time.Time), used: make(map[int]int)}
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
	return answer(status, "X-RateLimit-Resource", s.prefix+strconv.Itoa(route), "X-RateLimit-Limit", strconv.Itoa(s.limit),
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
			require.LessOrEqual(t, endpointIn(tr).Memory.Load(), int64(model.MaxBytes))
			snapshot := tr.Snapshot(0)
			require.Len(t, snapshot.Shown, 1)
			require.LessOrEqual(t, len(snapshot.Shown[0].Quotas), maxSmallShown+maxQuotas+1)
		})
	}
}

// However much memory is left when a host begins to have small quotas, none is without its limit. With partition keys, names have
// up to 228 bytes.
func TestTracker_namedQuotasOfAnyLength(t *testing.T) {
	for _, length := range []int{0, 50, 93} {
		for _, partition := range []bool{false, true} {
			for used := int64(0); used < quotaBytes+model.EstimateBytes; used += 16 {
				synctest.Test(t, func(t *testing.T) {
					tr, s := seeded(1), newNamedServer(1, time.Minute)
					s.prefix = strings.Repeat("x", length)
					state := func(route int) *http.Response {
						if !partition {
							return s.answer(route)
						}
						key := base64.StdEncoding.EncodeToString([]byte(s.prefix + strconv.Itoa(route)))
						return answer(200, "RateLimit-Policy", `"a";q=1;w=60;pk=:`+key+`:`, "RateLimit", `"a";r=0;t=60;pk=:`+key+`:`)
					}
					for route := range maxQuotas {
						require.True(t, ask(t, tr, routeURL(route), state(route)).OK)
						require.False(t, mayAsk(t, tr, routeURL(route)), "%d bytes, %t, %d used: route %d is used up", length, partition, used, route)
						if route == 0 {
							endpointIn(tr).Memory.Add(used)
						}
					}
					require.NotNil(t, endpointIn(tr).small)
				})
			}
		}
	}
}

func endpointIn(tr *Tracker) *endpoint { return tr.recent.Load() }

// small returns a Tracker whose host has small quotas, the server, and the route of one.
func small(t *testing.T, limit int) (tr *Tracker, s *namedServer, route int) {
	tr, s = seeded(1), newNamedServer(limit, time.Minute)
	for route = range maxQuotas {
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
		m.Limiter.Report(t.Context(), throttle.Claim{}, granted[0], throttle.Feedback{State: throttle.Unused})
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
		tr.NeverTest = true
		endpointIn(tr).NeverTest = true
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
		m.Limiter.Report(context.Background(), throttle.Claim{}, probe, tr.Feedback(req, m, s.answer(route), nil, time.Now(), nil))
		require.False(t, mayAsk(t, tr, routeURL(route)), "the probe used the only unit")
	})
}

// A rejection that states nothing of a limit holds no other request. A rejection of all routes holds all small quotas,
// and Forget releases them.
func TestSmallQuota_rejections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _, route := small(t, 100)
		for _, header := range [][]string{nil, {"Retry-After", "30"}} {
			ask(t, tr, routeURL(route), answer(http.StatusTooManyRequests, header...))
			require.True(t, mayAsk(t, tr, routeURL(route)), "%v", header)
		}
		ep := endpointIn(tr)
		ep.holdAll(&throttle.Feedback{Now: time.Now(), Outcome: throttle.Throttled, RetryAfter: time.Hour})
		for _, i := range []int{route, route - 1} {
			require.False(t, mayAsk(t, tr, routeURL(i)))
		}
		m := tr.Demand(request(t, routeURL(route)))
		tr.Forget(request(t, routeURL(route)))
		d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{DryRun: true})
		require.NoError(t, err)
		require.True(t, d.OK, "a request that waited is admitted")
	})
}

// While the server states that no unit is left, one request at a time tests that: immediately if no rejection has
// confirmed it, and then at intervals that grow.
func TestSmallQuota_testsStatements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _, route := small(t, 10)
		url := routeURL(route)
		none := func(status int) *http.Response {
			return answer(status, "X-RateLimit-Resource", "quota"+strconv.Itoa(route), "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "600")
		}
		require.True(t, ask(t, tr, url, none(200)).OK)
		stated := time.Now()
		var sent []time.Duration
		for time.Since(stated) < 20*time.Second {
			if d := ask(t, tr, url, none(429)); d.OK {
				sent = append(sent, time.Since(stated).Round(100*time.Millisecond))
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, []time.Duration{0, time.Second, 2500 * time.Millisecond, 4800 * time.Millisecond, 8100 * time.Millisecond, 13200 * time.Millisecond}, sent)
		d := ask(t, tr, url, none(429))
		require.False(t, d.OK)
		require.Greater(t, d.Expected, 9*time.Minute, "rejections have confirmed it")

		other := tr.Demand(request(t, url)).Limiter.(*smallQuota)
		other.endpoint.NeverTest = true
		time.Sleep(time.Minute)
		require.False(t, mayAsk(t, tr, url), "tests are switched off")
		other.endpoint.NeverTest = false
		first := tr.Demand(request(t, url))
		test, err := first.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.NoError(t, err)
		require.True(t, test.OK)
		second, _ := first.Limiter.Reserve(t.Context(), throttle.Claim{})
		require.False(t, second.OK)
		require.Zero(t, second.Wait, "the response to the test decides")
		first.Limiter.Report(t.Context(), throttle.Claim{}, test, throttle.Feedback{State: throttle.Unused})
		require.Equal(t, obeyed, other.belief)
	})
}

// A statement that an accepted test contradicts is ignored until its window is over, or until a rejection repeats it.
func TestSmallQuota_ignoresStatementsThatAreContradicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, _, route := small(t, 10)
		url := routeURL(route)
		none := func(status int) *http.Response {
			return answer(status, "X-RateLimit-Resource", "quota"+strconv.Itoa(route), "X-RateLimit-Limit", "10", "X-RateLimit-Remaining", "0", "X-RateLimit-Reset-After", "60")
		}
		for range 50 {
			require.True(t, ask(t, tr, url, none(200)).OK)
		}
		m := tr.Demand(request(t, url))
		for range 20 { // together
			d, err := m.Limiter.Reserve(t.Context(), throttle.Claim{})
			require.NoError(t, err)
			require.True(t, d.OK)
			m.Limiter.Report(t.Context(), throttle.Claim{}, d, throttle.Feedback{State: throttle.Unused})
		}
		require.True(t, ask(t, tr, url, none(429)).OK)
		require.False(t, ask(t, tr, url, none(200)).OK, "a rejection has repeated it")
		time.Sleep(2 * time.Minute)
		require.True(t, mayAsk(t, tr, url), "the window is over")
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

// newSmall returns the small quota of the route of users, and the time from which its times count.
func newSmall(t *testing.T, tr *Tracker, limit, left int64, reset time.Duration) (*smallQuota, time.Time) {
	now := time.Unix(1_700_000_000, 0)
	ep := tr.endpointOf(request(t, users))
	ep.small = &smallQuotas{began: now}
	q := &smallQuota{endpoint: ep, name: 1}
	q.set(throttle.RemoteLimit{Limit: limit, Remaining: left, ResetAfter: reset}, now)
	ep.addSmall(ep.route(request(t, users)), q, now)
	return q, now
}

// A small quota admits as many units as are left, less those in flight and reserved, and one request
// when its reset is over.
func TestSmallQuota_admits(t *testing.T) {
	for name, tt := range map[string]struct {
		limit, left, cost int64
		headroom          float64
		open              uint16
		after             time.Duration
		ok                bool
		wait              time.Duration
		remaining         int64
	}{
		"some":                            {10, 5, 2, 0, 3, 0, true, 0, 2},
		"too many":                        {10, 5, 3, 0, 3, time.Second, false, 59 * time.Second, 2},
		"reserved":                        {10, 5, 1, .2, 3, 0, false, time.Minute, 0},
		"more than the limit":             {10, 10, 11, 0, 0, 0, true, 0, 10},
		"more than the limit, one is out": {10, 9, 11, 0, 0, 0, false, time.Minute, 9},
		"no limit":                        {0, 0, 1, 0, 0, 0, false, time.Minute, 0},
		"the reset is over":               {10, 0, 1, 0, 0, time.Minute, true, 0, 0},
		"over, and one is in flight":      {10, 0, 1, 0, 1, time.Minute, false, 0, 0},
		"almost over":                     {10, 0, 1, 0, 0, time.Minute - 1, false, 1, 0},
	} {
		tr := &Tracker{Headroom: tt.headroom, NeverTest: true}
		q, start := newSmall(t, tr, tt.limit, tt.left, time.Minute)
		q.open = tt.open
		now := start.Add(tt.after)
		d, err := q.Reserve(t.Context(), throttle.Claim{Cost: tt.cost, Now: now, DryRun: true})
		require.NoError(t, err)
		want := throttle.Decision{OK: tt.ok, Wait: tt.wait, ServerImposed: !tt.ok, Policy: "api.test: quota", At: now, Limit: max(tt.limit, 1), Remaining: tt.remaining, ResetAfter: max(time.Minute-tt.after, 0)}
		require.Equal(t, want, d, name)
		require.Equal(t, []uint32{uint32(tt.open), 0}, []uint32{uint32(q.open), q.sent}, "%s: a dry run changes nothing", name)
		want.Grant = 0
		if d, _ = q.Reserve(t.Context(), throttle.Claim{Cost: tt.cost, Now: now}); tt.ok {
			want.Grant = 1
			require.Equal(t, []uint32{uint32(tt.open) + 1, 1, uint32(tt.after / smallTick)}, []uint32{uint32(q.open), q.sent, q.lastUsed}, name)
		}
		require.Equal(t, want, d, name)
	}
}

// Responses correct what is left: those to the latest requests, or after the reset, in any way, and
// older ones only if less is left or the window is another one.
func TestSmallQuota_observesResponses(t *testing.T) {
	stated := func(left int64, reset time.Duration) throttle.Feedback {
		return throttle.Feedback{RemoteLimits: []throttle.RemoteLimit{{Name: "a", Limit: 12, Remaining: left, ResetAfter: reset}}}
	}
	with := func(f throttle.Feedback, outcome throttle.Outcome, cause throttle.Cause, wait time.Duration) throttle.Feedback {
		f.Outcome, f.Cause, f.RetryAfter = outcome, cause, wait
		return f
	}
	const s = time.Second
	for name, tt := range map[string]struct {
		grant     uint64 // the limit was stated when five requests had been sent
		f         throttle.Feedback
		after     time.Duration
		remaining int32
		reset     time.Duration
		limit     int32
		open      int32
	}{
		"newer, more":               {6, stated(9, 50*s), 10 * s, 9, 60 * s, 12, 2},
		"older, more":               {5, stated(9, 50*s), 10 * s, 8, 60 * s, 10, 2},
		"older, as many":            {5, stated(8, 51*s), 10 * s, 8, 60 * s, 10, 2},
		"older, fewer":              {5, stated(7, 50*s), 10 * s, 7, 60 * s, 12, 2},
		"older, hardly later":       {5, stated(9, 50*s+statedlimit.Tolerance), 10 * s, 8, 60 * s, 10, 2},
		"older, later window":       {5, stated(9, 50*s+statedlimit.Tolerance+1), 10 * s, 9, 60*s + statedlimit.Tolerance + 1, 12, 2},
		"older, after the reset":    {5, stated(9, 50*s), 60 * s, 9, 110 * s, 12, 2},
		"older, before the reset":   {5, stated(9, 50*s), 60*s - 1, 9, 110*s - 1, 12, 2},
		"states nothing":            {6, throttle.Feedback{}, 10 * s, 7, 60 * s, 10, 2},
		"failed":                    {6, with(stated(3, 50*s), throttle.Failed, 0, 0), 10 * s, 8, 60 * s, 10, 2},
		"rejected, states nothing":  {6, with(throttle.Feedback{}, throttle.Throttled, 0, 0), 10 * s, 8, 60 * s, 10, 2},
		"rejected, states the rest": {6, with(stated(3, 30*s), throttle.Throttled, 0, 0), 10 * s, 3, 40 * s, 12, 2},
		"rejected, states a wait":   {6, with(throttle.Feedback{}, throttle.Throttled, 0, 70*s), 10 * s, 8, 60 * s, 10, 2},
		"rejected, a shorter wait":  {6, with(throttle.Feedback{}, throttle.Throttled, 0, 20*s), 10 * s, 8, 60 * s, 10, 2},
		"rejected, to retry now":    {6, with(throttle.Feedback{}, throttle.Throttled, throttle.CauseRetryNow, 0), 10 * s, 8, 60 * s, 10, 2},
		"not named":                 {6, throttle.Feedback{RemoteLimits: []throttle.RemoteLimit{{Limit: 12, Remaining: 3, ResetAfter: s}}}, 10 * s, 7, 60 * s, 10, 2},
		"part, states nothing":      {6, throttle.Feedback{State: throttle.Ongoing}, 10 * s, 8, 60 * s, 10, 3},
		"part, states the rest":     {6, throttle.Feedback{State: throttle.Ongoing, RemoteLimits: stated(9, 0).RemoteLimits}, 10 * s, 9, 11 * s, 12, 3},
	} {
		q, start := newSmall(t, &Tracker{}, 10, 8, time.Minute)
		q.sent, q.seen, q.open = 7, 5, 3
		f := tt.f
		f.Now = start.Add(tt.after)
		q.Report(t.Context(), throttle.Claim{}, throttle.Decision{OK: true, Grant: tt.grant}, f)
		require.Equal(t, []int32{tt.remaining, tt.limit, tt.open}, []int32{q.remaining, q.limit, int32(q.open)}, name)
		require.Equal(t, tt.reset, q.reset, name)
		q.open = 0
		q.Report(t.Context(), throttle.Claim{}, throttle.Decision{OK: true, Grant: tt.grant}, throttle.Feedback{Now: f.Now, Outcome: throttle.Failed})
		require.Zero(t, q.open, "%s: a response was reported twice", name)
		before := *q
		q.Report(t.Context(), throttle.Claim{}, throttle.Decision{}, stated(1, s))
		require.Equal(t, before, *q, "%s: it was not granted", name)
	}
	q, start := newSmall(t, &Tracker{}, 10, 8, time.Minute)
	q.sent, q.seen = 3, 1<<32-2
	q.Report(t.Context(), throttle.Claim{}, throttle.Decision{OK: true, Grant: 2}, throttle.Feedback{Now: start, RemoteLimits: stated(9, time.Minute).RemoteLimits})
	require.EqualValues(t, 9, q.remaining, "numbers of requests are modulo 2^32")
	q.set(throttle.RemoteLimit{Limit: 5, Remaining: 1 << 40, ResetAfter: time.Second}, start)
	require.EqualValues(t, 1<<31-1, q.remaining)
	q.set(throttle.RemoteLimit{Limit: 5, Remaining: -4, ResetAfter: time.Second}, start)
	require.Zero(t, q.remaining)
	q.open = 1
	q.Report(t.Context(), throttle.Claim{}, throttle.Decision{}, throttle.Feedback{State: throttle.Unused})
	require.EqualValues(t, 1, q.open)
	for range 2 {
		q.Report(t.Context(), throttle.Claim{}, throttle.Decision{OK: true}, throttle.Feedback{State: throttle.Unused})
		require.Zero(t, q.open)
	}
}

// A limit with a name, in requests, makes a small quota; others do not.
func TestIsSmall(t *testing.T) {
	named := throttle.RemoteLimit{Name: "a", Limit: 1<<31 - 1, Remaining: 1}
	require.True(t, isSmall([]throttle.RemoteLimit{named}))
	unnamed, tokens, large, concurrent, unknown := named, named, named, named, named
	unnamed.Name, tokens.Unit, large.Limit, concurrent.Unit, unknown.RemainingUnknown = "", "tokens", 1<<31, statedlimit.UnitConcurrent, true
	for _, limits := range [][]throttle.RemoteLimit{nil, {named, named}, {unnamed}, {tokens}, {large}, {concurrent}, {unknown}} {
		require.False(t, isSmall(limits), "%v", limits)
	}
}

// Without memory, the small quota that was used least recently gives way: not one with requests in
// flight, nor one that is used up.
func TestSmallQuotas_replaceTheOldest(t *testing.T) {
	var tr Tracker
	q, now := newSmall(t, &tr, 10, 8, time.Minute)
	ep := q.endpoint
	add := func(route uint64, change func(q *smallQuota)) {
		q := &smallQuota{endpoint: ep, name: route, remaining: 5, lastUsed: uint32(route), reset: time.Minute}
		if change != nil {
			change(q)
		}
		ep.addSmall(route, q, now)
	}
	q.open = 1 // of the route of users
	add(10, func(q *smallQuota) { q.open = 1 })
	add(11, func(q *smallQuota) { q.remaining = 0 })
	add(12, func(q *smallQuota) { q.remaining = 1 })
	add(13, func(q *smallQuota) { q.remaining, q.reset, q.lastUsed = 0, 0, 12 })
	add(14, nil)
	add(14, nil)
	require.Len(t, ep.small.routes, 6)
	used := ep.Memory.Load()
	require.EqualValues(t, 6*smallBytes, used)
	ep.Memory.Store(model.MaxBytes)
	for i, gone := range []uint64{12, 13, 14} {
		add(uint64(20+i), func(q *smallQuota) { q.open = 1 })
		require.Nil(t, ep.small.find(gone))
		require.NotNil(t, ep.small.find(uint64(20+i)))
	}
	add(30, nil)
	require.Nil(t, ep.small.find(30), "none gives way")
	add(11, nil)
	require.EqualValues(t, 5, ep.small.find(11).remaining, "a route has the latest quota that its responses state")
	for _, route := range []uint64{10, 11, 20, 21, 22} {
		require.Equal(t, route, ep.small.find(route).name, "%d", route)
	}
	require.Len(t, ep.small.routes, 6)
	require.LessOrEqual(t, cap(ep.small.routes), 8)
	ep.Memory.Store(0)
	for i := range uint64(20) {
		add(100+i, nil)
		require.LessOrEqual(t, cap(ep.small.routes)-len(ep.small.routes), 8, "memory that is not used")
	}
}

// Quotas that a small one cannot hold remain as they are.
func TestQuota_isShrunk(t *testing.T) {
	now := time.Unix(1000, 0)
	var tr Tracker
	ep := tr.endpointOf(request(t, users))
	fresh := func() *quota {
		q := ep.newQuota()
		q.Estimates = []statedlimit.Estimate{{Name: "a", Limit: 10, Remaining: 4, At: now, Reset: now.Add(time.Minute), Per: time.Hour}}
		return q
	}
	w, ok := fresh().shrunk(now)
	require.True(t, ok)
	require.Equal(t, throttle.RemoteLimit{Name: "a", Limit: 10, Remaining: 4, ResetAfter: time.Minute, Per: time.Hour}, w)
	for name, change := range map[string]func(q *quota){
		"in flight":         func(q *quota) { q.InFlight.Add() },
		"learned":           func(q *quota) { q.Learned = &model.Learned{} },
		"units":             func(q *quota) { q.units = []*unitQuota{{}} },
		"two limits":        func(q *quota) { q.Estimates = append(q.Estimates, q.Estimates[0]) },
		"no limit":          func(q *quota) { q.Estimates = nil },
		"no name":           func(q *quota) { q.Estimates[0].Name = "" },
		"limit of requests": func(q *quota) { q.Estimates[0] = concurrentEstimate(q.Estimates[0].Limit, 1, q.Estimates[0].Reset) },
	} {
		q := fresh()
		change(q)
		_, ok := q.shrunk(now)
		require.False(t, ok, name)
	}
	for name, tt := range map[string]struct {
		active    bool
		until     time.Duration
		remaining int64
		reset     time.Duration
	}{
		"hold that is over":  {false, 0, 4, time.Minute},
		"hold that ends now": {true, 0, 4, time.Minute},
		"hold":               {true, time.Hour, 0, time.Hour},
	} {
		q := fresh()
		q.Hold.Held, q.Hold.Until = tt.active, now.Add(tt.until)
		w, ok = q.shrunk(now)
		require.True(t, ok, name)
		require.Equal(t, []int64{tt.remaining, int64(tt.reset)}, []int64{w.Remaining, int64(w.ResetAfter)}, name)
	}
}

// The quotas of an account with small ones are shown with the fewest units first.
func TestSmallQuotas_snapshots(t *testing.T) {
	tr := &Tracker{}
	q, now := newSmall(t, tr, 10, 8, time.Minute)
	ep := q.endpoint
	q.open = 3
	ep.addSmall(1, q, now)
	for i := range int32(maxSmallShown) {
		used := &smallQuota{endpoint: ep, name: uint64(i), limit: 10, remaining: i % 2, reset: time.Minute}
		ep.addSmall(uint64(10+i), used, now)
	}
	all := ep.small.snapshots("api.test", now)
	require.Len(t, all, maxSmallShown)
	hold := &HoldSnapshot{Reason: "quota", Until: now.Add(time.Minute)}
	limit := LimitSnapshot{Unit: "requests", Size: 10, RemainingKnown: true, Reset: now.Add(time.Minute)}
	require.Equal(t, QuotaSnapshot{Name: "api.test", Hold: hold, Limits: []LimitSnapshot{limit}}, all[0])
	limit.Remaining = 1
	require.Equal(t, QuotaSnapshot{Name: "api.test", Limits: []LimitSnapshot{limit}}, all[maxSmallShown-1])
	require.Nil(t, ep.small.snapshots("api.test", now.Add(time.Minute))[0].Hold, "the reset is over")
	ep.small.routes = ep.small.routes[:0]
	for route := range uint64(3) {
		ep.addSmall(route, q, now)
	}
	limit.Remaining = 5
	require.Equal(t, []QuotaSnapshot{{Name: "api.test", InFlight: 3, Limits: []LimitSnapshot{limit}}}, ep.small.snapshots("api.test", now))
}

// When small quotas begin, those that no request uses become small, but none with a name that the
// program gave, and not the one of unknown routes.
func TestEndpoint_shrinksQuotas(t *testing.T) {
	now := time.Unix(1000, 0)
	tr := &Tracker{}
	ep := tr.endpointOf(request(t, users))
	ep.small = &smallQuotas{began: now}
	add := func(route uint64) *quota {
		q := ep.addQuota(route, ep.newQuota(), nil, now)
		q.Estimates = []statedlimit.Estimate{{Name: "limit", Limit: 10, Remaining: 4, At: now, Reset: now.Add(time.Minute)}}
		ep.rememberRoute(route, q)
		return q
	}
	idle, named, busy, unknown := add(1), add(1<<63), add(3), add(4)
	ep.rememberRoute(5, idle)
	busy.InFlight.Add()
	ep.unknown.Store(unknown)
	ep.shrinkQuotas(now)
	require.Equal(t, []*quota{named, busy, unknown}, ep.quotas)
	require.Len(t, ep.small.routes, 2)
	small := ep.small.find(1)
	require.Same(t, small, ep.small.find(5))
	require.Same(t, small, idle.small.Load(), "requests that wait for the quota")
	require.Equal(t, []int64{10, 4, int64(time.Minute)}, []int64{int64(small.limit), int64(small.remaining), int64(small.reset)})

	limits := []throttle.RemoteLimit{{Name: "limit", Limit: 10, Remaining: 3, ResetAfter: time.Minute}}
	require.False(t, ep.assignSmall(6, limits, now), "a quota of type quota has the limit")
	busy.InFlight.End(1)
	unknown.Estimates[0].Name = "another"
	require.True(t, ep.assignSmall(6, limits, now))
	require.Same(t, small, ep.small.find(6), "the same name")
	require.EqualValues(t, 3, small.remaining)
	require.False(t, ep.assignSmall(1<<63, limits, now))
	require.False(t, ep.assignSmall(4, limits, now), "its route has a quota")
	require.False(t, ep.assignSmall(7, nil, now))
	limits[0].Name = "new"
	require.True(t, ep.assignSmall(7, limits, now))
	require.NotSame(t, small, ep.small.find(7))
	require.True(t, ep.assignSmall(6, limits, now))
	require.Same(t, ep.small.find(7), ep.small.find(6), "the latest name of a route counts")
}

// At a host with small quotas, a route of which nothing is known gets one request at a time. A response
// that states no limit shows that it has none; the route uses the unknown quota then.
func TestSmallQuotas_unknownRoutes(t *testing.T) {
	tr := &Tracker{}
	q, now := newSmall(t, tr, 10, 8, time.Minute)
	tr.Clock = stopped(now)
	ep := q.endpoint
	ep.hasQuotas.Store(true)
	req := request(t, search)
	m := tr.Demand(req)
	unstated, ok := m.Limiter.(*smallQuota)
	require.True(t, ok)
	require.Same(t, unstated, tr.Demand(req).Limiter)
	require.NotSame(t, q, unstated)
	first, err := unstated.Reserve(t.Context(), throttle.Claim{Now: now})
	require.NoError(t, err)
	require.True(t, first.OK)
	second, _ := unstated.Reserve(t.Context(), throttle.Claim{Now: now})
	require.False(t, second.OK)
	f := tr.Feedback(req, m, answer(500), nil, now, nil)
	unstated.Report(t.Context(), throttle.Claim{}, first, f)
	require.Same(t, unstated, tr.Demand(req).Limiter, "a failure shows nothing")
	tr.Feedback(req, m, answer(200), nil, now, nil)
	require.Same(t, ep.unknown.Load(), tr.Demand(req).Limiter)
	require.Same(t, ep.unknown.Load(), tr.Demand(req).Limiter)
	ep.Memory.Store(model.MaxBytes)
	require.Same(t, ep.unknown.Load(), tr.Demand(request(t, issues)).Limiter, "there is no memory")
	ep.Memory.Store(0)
	named := request(t, issues)
	require.Same(t, ep.unknown.Load(), tr.Demand(named.WithContext(WithName(t.Context(), "name"))).Limiter)
	ep.rememberRoute(ep.route(named), ep.unknown.Load())
	require.Same(t, ep.unknown.Load(), tr.Demand(named).Limiter)
}

// Requests of a route for whose small quota there was no memory wait for the unknown quota. They ask
// again when the route gets a small quota.
func TestSmallQuotas_renewWaitsOfRoutesWithoutMemory(t *testing.T) {
	tr, wakes := &Tracker{}, new(renewing)
	tr.Notify(wakes)
	q, now := newSmall(t, tr, 10, 8, time.Minute)
	ep := q.endpoint
	ep.hasQuotas.Store(true)
	ep.Memory.Store(model.MaxBytes)
	req := request(t, search)
	m := tr.Demand(req)
	unknown := ep.unknown.Load()
	require.Same(t, unknown, m.Limiter, "there is no memory")
	ep.Memory.Store(model.MaxBytes - smallBytes)
	tr.Feedback(req, m, answer(200, "X-RateLimit-Resource", "search", "X-RateLimit-Limit", "9", "X-RateLimit-Remaining", "7", "X-RateLimit-Reset-After", "5"), nil, now, nil)
	small, ok := tr.Demand(req).Limiter.(*smallQuota)
	require.True(t, ok)
	require.EqualValues(t, 7, small.remaining)
	require.Contains(t, wakes.limiters, throttle.Limiter(unknown))
}

// The rejection of a request by another small quota than asked does not hold the one that was asked.
func TestSmallQuota_rejectionsOfOthers(t *testing.T) {
	q, now := newSmall(t, &Tracker{}, 10, 8, time.Minute)
	q.sent, q.open = 1, 1
	q.Report(t.Context(), throttle.Claim{}, throttle.Decision{OK: true, Grant: 1}, throttle.Feedback{Now: now, Outcome: throttle.Throttled, Cause: model.CauseOtherQuota, RetryAfter: time.Hour})
	require.Equal(t, []int64{8, 0, int64(time.Minute)}, []int64{int64(q.remaining), int64(q.open), int64(q.reset)})
}
