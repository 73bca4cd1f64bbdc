package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A set becomes a pattern when three different routes have shown its quota.
func TestRouteSet_countsDifferentRoutes(t *testing.T) {
	r := routeSet{quota: new(quota)}
	for i, tt := range []struct {
		route   uint64
		shown   uint8
		pattern bool
	}{{7, 1, false}, {7, 1, false}, {8, 2, false}, {7, 2, false}, {8, 2, false}, {9, 3, true}, {10, 3, true}} {
		r.show(tt.route)
		require.Equal(t, tt.shown, r.numShown, i)
		require.Equal(t, tt.pattern, r.isPattern(), i)
	}
	r.quota = nil
	require.False(t, r.isPattern(), "its routes showed two quotas")
}

// The segments in which patterns differ, and the routes beyond one for each, are derived from the sets.
func TestPatterns_areIndexed(t *testing.T) {
	one, two := new(quota), new(quota)
	p := patterns{varying: 255, extraRoutes: 9, sets: []routeSet{
		{quota: one, numShown: 3, at: 1, numRoutes: 5},
		{quota: two, numShown: 3, at: 4, numRoutes: 3},
		{quota: two, numShown: 2, at: 2, numRoutes: 2},
		{quota: nil, numShown: 3, at: 3, numRoutes: 7},
	}}
	p.reindex()
	require.EqualValues(t, 1<<1|1<<4, p.varying)
	require.Equal(t, 4+2, p.extraRoutes)
	require.Equal(t, 2, p.forget(two))
	require.Len(t, p.sets, 2)
	require.EqualValues(t, 1<<1, p.varying)
	require.Equal(t, 4, p.extraRoutes)
	require.Zero(t, p.forget(two))
	require.Equal(t, 1, p.forget(one))
	require.Zero(t, p.varying)
	require.Zero(t, p.extraRoutes)
}

// Each route that is remembered for a set is counted once, up to the maximum. If there are too many sets,
// the one that was used least recently is replaced, but no pattern, and none that showed two quotas.
func TestEndpoint_recordsRoutesOfSets(t *testing.T) {
	tr := &Tracker{}
	req := request(t, "https://api.test/pages/about")
	ep := tr.endpointOf(req)
	q := ep.unknown.Load()
	for i, want := range []uint16{1, 2, 3} {
		ep.recordShown(req, uint64(i), q, i != 1)
		require.Len(t, ep.patterns.sets, 2, "about and pages differ")
		require.Equal(t, want, ep.patterns.sets[0].numRoutes)
		require.EqualValues(t, []int{1, 1, 2}[i], ep.patterns.sets[0].numShown, "one response did not show it")
		require.EqualValues(t, 2*(i+1)-1, ep.patterns.sets[0].used)
		require.EqualValues(t, 2*(i+1), ep.patterns.sets[1].used)
	}
	ep.patterns.sets[0].numRoutes = maxRoutes
	ep.recordShown(req, 9, q, true)
	require.EqualValues(t, maxRoutes, ep.patterns.sets[0].numRoutes)
	require.Equal(t, []uint8{0, 1}, []uint8{ep.patterns.sets[0].at, ep.patterns.sets[1].at})
	ep.recordShown(req, 10, new(quota), true)
	require.Nil(t, ep.patterns.sets[0].quota, "its routes have shown two quotas")

	full := func() *endpoint {
		ep := (&Tracker{}).endpointOf(req)
		for i := range uint32(maxSets) {
			require.NotNil(t, ep.addSet())
			ep.patterns.sets[i] = routeSet{shape: uint64(i), quota: q, used: 100 + i}
		}
		return ep
	}
	for name, tt := range map[string]struct {
		change func(sets []routeSet)
		want   int // index; -1: none
	}{
		"the first":                  {func([]routeSet) {}, 0},
		"another one is older":       {func(sets []routeSet) { sets[3].used = 99 }, 3},
		"the last is the oldest":     {func(sets []routeSet) { sets[maxSets-1].used = 1 }, maxSets - 1},
		"the oldest is a pattern":    {func(sets []routeSet) { sets[0].numShown = 3 }, 1},
		"the oldest has two quotas":  {func(sets []routeSet) { sets[0].quota = nil }, 1},
		"none has shown one quota":   {func(sets []routeSet) { clear(sets) }, -1},
		"of the same age, the first": {func(sets []routeSet) { sets[5].used = 100 }, 0},
	} {
		ep := full()
		tt.change(ep.patterns.sets)
		set := ep.addSet()
		require.Len(t, ep.patterns.sets, maxSets, name)
		if tt.want < 0 {
			require.Nil(t, set, name)
		} else {
			require.Same(t, &ep.patterns.sets[tt.want], set, name)
		}
	}
	ep = (&Tracker{}).endpointOf(req)
	ep.memory.Store(maxBytes - setBytes + 1)
	require.Nil(t, ep.addSet(), "there is no memory")
	ep.memory.Store(maxBytes - setBytes)
	require.NotNil(t, ep.addSet())
	require.EqualValues(t, maxBytes, ep.memory.Load())
}

// The most requests of a quota that were in flight together are remembered for ten seconds.
func TestEndpoint_remembersThePeakInFlight(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	for name, tt := range map[string]struct {
		peak int64
		age  time.Duration
		want int64 // three are in flight
	}{
		"fewer before":                 {2, time.Second, 3},
		"as many":                      {3, time.Second, 3},
		"more before":                  {4, 10 * time.Second, 4},
		"more than ten seconds before": {4, 10*time.Second + 1, 3},
	} {
		req := request(t, users)
		ep := (&Tracker{}).endpointOf(req)
		q := ep.unknown.Load()
		for range 3 {
			q.inFlight.Add()
		}
		ep.patterns.peak, ep.patterns.peakAt = tt.peak, now.Add(-tt.age)
		f := throttle.Feedback{Now: now, RemoteLimits: []throttle.RemoteLimit{{Limit: 10, Remaining: 5, ResetAfter: time.Minute}}}
		require.NotNil(t, ep.quotaOfResponse(ep.route(req), req, q, &f), name)
		require.Equal(t, tt.want, ep.patterns.peak, name)
		require.Equal(t, tt.want == 3, ep.patterns.peakAt.Equal(now), name)
	}
}

// If there is no memory for a route, it replaces another one. If there is none, it is not remembered.
func TestEndpoint_remembersRoutesWithinItsMemory(t *testing.T) {
	ep := (&Tracker{}).endpointOf(request(t, users))
	q := ep.unknown.Load()
	ep.memory.Store(maxBytes)
	ep.rememberRoute(7, q)
	require.Empty(t, ep.routes, "there is no memory")
	ep.memory.Store(maxBytes - routeBytes)
	ep.rememberRoute(7, q)
	require.Equal(t, map[uint64]*quota{7: q}, ep.routes)
	require.EqualValues(t, maxBytes, ep.memory.Load())
	ep.rememberRoute(7, q)
	require.EqualValues(t, maxBytes, ep.memory.Load(), "it is known")
	ep.rememberRoute(8, q)
	require.Equal(t, map[uint64]*quota{8: q}, ep.routes, "it replaces the other one")
	require.EqualValues(t, maxBytes, ep.memory.Load())
	ep.memory.Store(0)
	for i := range uint64(2 * maxRoutes) {
		ep.rememberRoute(100+i, q)
	}
	require.Len(t, ep.routes, maxRoutes)
	require.EqualValues(t, (maxRoutes-1)*routeBytes, ep.memory.Load())
}
