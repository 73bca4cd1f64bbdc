package routes

import (
	"hash/maphash"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A set becomes a pattern when three different routes have shown its quota.
func TestSet_countsDifferentRoutes(t *testing.T) {
	r := set[*int]{quota: new(int)}
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
	one, two := new(int), new(int)
	p := Patterns[*int]{varying: 255, extraRoutes: 9, sets: []set[*int]{
		{quota: one, numShown: 3, at: 1, numRoutes: 5},
		{quota: two, numShown: 3, at: 4, numRoutes: 3},
		{quota: two, numShown: 2, at: 2, numRoutes: 2},
		{quota: nil, numShown: 3, at: 3, numRoutes: 7},
	}}
	p.reindex()
	require.EqualValues(t, 1<<1|1<<4, p.varying)
	require.Equal(t, 4+2, p.ExtraRoutes())
	require.Equal(t, 2*p.setBytes(), p.Forget(two))
	require.Len(t, p.sets, 2)
	require.EqualValues(t, 1<<1, p.varying)
	require.Equal(t, 4, p.ExtraRoutes())
	require.Zero(t, p.Forget(two))
	require.Equal(t, p.setBytes(), p.Forget(one))
	require.Zero(t, p.varying)
	require.Zero(t, p.ExtraRoutes())
}

// Each route that is remembered for a set is counted once, up to the maximum. If there are too many sets,
// the one that was used least recently is replaced, but no pattern, and none that showed two quotas.
func TestPatterns_recordRoutes(t *testing.T) {
	req, seed, q := request(t, "https://api.test/pages/about"), maphash.MakeSeed(), new(int)
	var p Patterns[*int]
	always := func(int64) bool { return true }
	for i, want := range []uint16{1, 2, 3} {
		p.Record(seed, req, uint64(i), q, i != 1, always)
		require.Len(t, p.sets, 2, "about and pages differ")
		require.Equal(t, want, p.sets[0].numRoutes)
		require.EqualValues(t, []int{1, 1, 2}[i], p.sets[0].numShown, "one response did not show it")
		require.EqualValues(t, 2*(i+1)-1, p.sets[0].used)
		require.EqualValues(t, 2*(i+1), p.sets[1].used)
	}
	p.sets[0].numRoutes = MaxRoutes
	p.Record(seed, req, 9, q, true, always)
	require.EqualValues(t, MaxRoutes, p.sets[0].numRoutes)
	require.Equal(t, []uint8{0, 1}, []uint8{p.sets[0].at, p.sets[1].at})
	p.Record(seed, req, 10, new(int), true, always)
	require.Nil(t, p.sets[0].quota, "its routes have shown two quotas")

	full := func() (p Patterns[*int]) {
		for i := range uint32(maxSets) {
			require.NotNil(t, p.add(always))
			p.sets[i] = set[*int]{shape: uint64(i), quota: q, used: 100 + i}
		}
		return p
	}
	for name, tt := range map[string]struct {
		change func(sets []set[*int])
		want   int // index; -1: none
	}{
		"the first":                  {func([]set[*int]) {}, 0},
		"another one is older":       {func(sets []set[*int]) { sets[3].used = 99 }, 3},
		"the last is the oldest":     {func(sets []set[*int]) { sets[maxSets-1].used = 1 }, maxSets - 1},
		"the oldest is a pattern":    {func(sets []set[*int]) { sets[0].numShown = 3 }, 1},
		"the oldest has two quotas":  {func(sets []set[*int]) { sets[0].quota = nil }, 1},
		"none has shown one quota":   {func(sets []set[*int]) { clear(sets) }, -1},
		"of the same age, the first": {func(sets []set[*int]) { sets[5].used = 100 }, 0},
	} {
		p := full()
		tt.change(p.sets)
		found := p.add(always)
		require.Len(t, p.sets, maxSets, name)
		if tt.want < 0 {
			require.Nil(t, found, name)
		} else {
			require.Same(t, &p.sets[tt.want], found, name)
		}
	}
	var reserved int64
	p = Patterns[*int]{}
	require.Nil(t, p.add(func(n int64) bool { reserved = n; return false }), "there is no memory")
	require.Positive(t, reserved)
	require.Zero(t, p.Bytes())
	require.NotNil(t, p.add(always))
	require.Equal(t, reserved, p.Bytes())
}

// A request has the quota of the patterns that it matches, if that is one.
func TestPatterns_quotaOfARequest(t *testing.T) {
	seed, one, two := maphash.MakeSeed(), new(int), new(int)
	always := func(int64) bool { return true }
	record := func(p *Patterns[*int], q *int, paths ...string) {
		for _, path := range paths {
			req := request(t, "https://api.test"+path)
			p.Record(seed, req, Hash(seed, req), q, true, always)
		}
	}
	similar := func(p *Patterns[*int], path string) (all map[*int]bool) {
		all = map[*int]bool{}
		for q, pattern := range p.Similar(seed, request(t, "https://api.test"+path)) {
			all[q] = pattern
		}
		return all
	}
	var p Patterns[*int]
	other := request(t, "https://api.test/pages/other")
	record(&p, one, "/pages/about", "/pages/first")
	require.Nil(t, p.Of(seed, other), "two routes make no pattern")
	require.Equal(t, map[*int]bool{one: false}, similar(&p, "/pages/other"))
	record(&p, one, "/pages/last")
	require.Same(t, one, p.Of(seed, other))
	require.Nil(t, p.Of(seed, nil))
	require.Nil(t, p.Of(seed, request(t, "https://api.test/users/about/x")))
	require.Equal(t, map[*int]bool{one: true}, similar(&p, "/pages/other"))
	require.Empty(t, similar(&p, "/users/x"))
	for range p.Similar(seed, nil) {
		t.Fatal("no request is similar to none")
	}
	record(&p, two, "/a/other", "/b/other", "/c/other")
	require.Nil(t, p.Of(seed, other), "two patterns with different quotas")
	require.Same(t, one, p.Of(seed, request(t, "https://api.test/pages/new")))
	require.Same(t, two, p.Of(seed, request(t, "https://api.test/d/other")))
	record(&p, two, "/pages/new")
	require.Nil(t, p.Of(seed, request(t, "https://api.test/pages/newer")), "the set has shown two quotas")
}

// Routes that differ in one segment have one shape.
func TestShapeOf(t *testing.T) {
	seed := maphash.MakeSeed()
	shape := func(path string, at int) uint64 {
		var buf [Max]byte
		h, ok := shapeOf(seed, Append(buf[:0], request(t, "https://api.test"+path)), at)
		require.True(t, ok, path)
		return h
	}
	require.Equal(t, shape("/pages/one", 1), shape("/pages/other", 1))
	require.Equal(t, shape("/pages/one", 1), shape("/pages/17", 1))
	require.Equal(t, shape("/a/b/c", 0), shape("/x/b/c", 0))
	require.NotEqual(t, shape("/pages/one", 1), shape("/users/one", 1))
	require.NotEqual(t, shape("/a/a", 0), shape("/a/a", 1))
	require.NotEqual(t, shape("/a/b", 1), shape("/a/b/c", 1))
	require.NotEqual(t, shape("/a/b/c", 1), shape("/a/bc/d", 1))
	long := "/" + strings.Repeat(strings.Repeat("s", maxSegment)+"/", maxSegments+3)
	require.Equal(t, shape(long+"x", 7), shape(long+"y", 7))
	for _, none := range []struct {
		path string
		at   int
	}{{"/", 0}, {"/pages", 0}, {"/17/pages", 1}, {"/pages/17", 2}, {"/17/18", 1}} {
		var buf [Max]byte
		_, ok := shapeOf(seed, Append(buf[:0], request(t, "https://api.test"+none.path)), none.at)
		require.False(t, ok, "%v", none)
	}
}
