package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/throttle"
)

// A response may concern an estimate if it states about the same reset, less than twice the tolerance
// apart, and no more units left than are known, but for responses that arrive in another order.
func TestEstimate_mayBeTheSameWindow(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, tt := range map[string]struct {
		change    func(e *estimate)
		left      int64
		reset     time.Duration // of e it is a minute
		reordered int64
		want      bool
	}{
		"the same":                       {nil, 50, time.Minute, 0, true},
		"fewer left":                     {nil, 0, time.Minute, 0, true},
		"more left":                      {nil, 51, time.Minute, 0, false},
		"more left, reordered":           {nil, 53, time.Minute, 3, true},
		"more left than reordered":       {nil, 54, time.Minute, 3, false},
		"almost 2.2 s later":             {nil, 50, time.Minute + 2*tolerance - 1, 0, true},
		"2.2 s later":                    {nil, 50, time.Minute + 2*tolerance, 0, false},
		"almost 2.2 s earlier":           {nil, 50, time.Minute - 2*tolerance + 1, 0, true},
		"2.2 s earlier":                  {nil, 50, time.Minute - 2*tolerance, 0, false},
		"it counts requests in flight":   {func(e *estimate) { e.concurrency.confirmed = true }, 99, time.Hour, 0, true},
		"its window is over in 1.1 s":    {func(e *estimate) { e.reset = now.Add(tolerance) }, 99, time.Hour, 0, true},
		"its window is over after 1.1 s": {func(e *estimate) { e.reset = now.Add(tolerance + 1) }, 99, time.Hour, 0, false},
		"maybe a bucket":                 {func(e *estimate) { e.refill.kind = refillUnknown }, 50, 40 * time.Second, 0, true},
		"a window is no bucket":          {nil, 50, 40 * time.Second, 0, false},
	} {
		e := estimate{limit: 100, remaining: 50, at: now, reset: now.Add(time.Minute), refill: refill{kind: refillsAtReset}}
		if tt.change != nil {
			tt.change(&e)
		}
		require.Equal(t, tt.want, e.mayBe(throttle.RemoteLimit{Limit: 100, Remaining: tt.left, ResetAfter: tt.reset}, tt.reordered, now), name)
	}
}

// Two responses may state one bucket if no more units are left in the later one than have returned
// since, and one that is not whole, and if the rates at which they say that it will be full differ at
// most by a factor of four, beside the tolerance of both times. e has missed 60 of 100 units, and was
// full in 60 s: one unit per second.
func TestEstimate_mayBeABucketOfTheSameRate(t *testing.T) {
	at := time.Unix(1000, 0)
	const s = time.Second
	for name, tt := range map[string]struct {
		remaining int64         // of e, of 100
		full      time.Duration // when e is full, after at
		passed    time.Duration
		left      int64
		reset     time.Duration
		reordered int64
		want      bool
	}{
		"no time passed":                 {40, 60 * s, 0, 40, 60 * s, 0, true},
		"a part of a unit returned":      {40, 60 * s, 0, 41, 59 * s, 0, true},
		"two units, in no time":          {40, 60 * s, 0, 42, 58 * s, 0, false},
		"two units, reordered":           {40, 60 * s, 0, 42, 58 * s, 1, true},
		"ten seconds passed":             {40, 60 * s, 10 * s, 51, 49 * s, 0, true},
		"ten seconds, twelve units":      {40, 60 * s, 10 * s, 52, 48 * s, 0, false},
		"full at most":                   {40, 60 * s, 1000 * s, 100, 0, 0, true},
		"more than full":                 {40, 60 * s, 1000 * s, 102, 0, 0, false},
		"four times as fast":             {40, 60 * s, 0, 40, 13900 * time.Millisecond, 0, true},
		"faster":                         {40, 60 * s, 0, 40, 13900*time.Millisecond - 1, 0, false},
		"four times as slow":             {40, 60 * s, 0, 40, 241100 * time.Millisecond, 0, true},
		"slower":                         {40, 60 * s, 0, 40, 241100*time.Millisecond + 1, 0, false},
		"half of it is missing now":      {40, 60 * s, 0, 10, 90 * s, 0, true},
		"it was full":                    {100, 60 * s, 0, 100, 999 * s, 0, true},
		"it was full, more than that":    {100, 60 * s, 0, 101, 999 * s, 0, false},
		"its reset was over":             {40, 0, 0, 100, 999 * s, 0, true},
		"the clock was set back":         {40, 60 * s, -1, 100, 999 * s, 0, true},
		"a reset within its tolerance":   {40, 2 * s, 2 * s, 100, 0, 0, true},
		"half of the time, at least":     {40, 2 * s, s, 100, 0, 0, true},
		"less than half of it":           {40, 2 * s, s / 2, 71, s, 0, true},
		"more than that returned by now": {40, 2 * s, s / 2, 74, s, 0, false},
	} {
		e := estimate{limit: 100, remaining: tt.remaining, at: at, reset: at.Add(tt.full)}
		w := throttle.RemoteLimit{Limit: 100, Remaining: tt.left, ResetAfter: tt.reset}
		now := at.Add(tt.passed)
		if tt.reset == 0 {
			w.ResetAfter = 1
		}
		require.Equal(t, tt.want, e.mayBeBucket(w, tt.reordered, now), name)
	}
}

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
			q.inFlight.add()
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
