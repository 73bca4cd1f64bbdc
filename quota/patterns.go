package quota

import (
	"hash/maphash"
	"math/bits"
	"net/http"
	"slices"
	"time"
	"unsafe"

	"github.com/heed-go/heed/throttle"
)

// patterns are the sets of routes of one site that differ in one path segment only, as
// /pages/first-steps and /pages/about do. Three routes of a set that showed the same quota make
// the set a pattern: a route of it that is new begins with that quota, not with an unknown one.
// A set whose routes showed two quotas is never a pattern. Routes that have no segment in common
// are no set.
//
// The mutex of the site guards all of it. Patterns are local to a process: other processes know
// routes only.
type patterns struct {
	sets   []routeSet // at most maxSets
	wild   uint8      // bit i: a set that is a pattern differs in segment i
	spare  int        // how many remembered routes are of patterns, beyond one of each
	latest uint32     // number of the latest use of a set
	crowd  crowd
}

// A crowd is how many requests were in flight together, at most. Their responses may state what
// is left in any order.
type crowd struct {
	most int64
	at   time.Time // when there were so many
}

// crowdFor is how long a crowd is remembered.
const crowdFor = 10 * time.Second

func (c *crowd) note(n int64, now time.Time) {
	if n >= c.most || now.Sub(c.at) > crowdFor {
		c.most, c.at = n, now
	}
}

// A routeSet is the routes that differ in one segment only.
type routeSet struct {
	shape  uint64                    // see shapeOf
	pool   *bucket                   // quota that its routes showed; nil: they showed two
	routes [patternRoutes - 1]uint64 // the first that showed it
	used   uint32                    // number of the latest use
	seen   uint16                    // how many routes were remembered with the quota
	shown  uint8                     // how many of them showed it, at most patternRoutes
	at     uint8                     // index of the segment
}

const (
	patternRoutes = 3  // routes that showed one quota make a pattern
	maxSets       = 24 // sets of one site

	// The rate at which a bucket is refilled follows from what is missing and when it is full. Both
	// are stated roughly and for different moments, so two rates are of one bucket up to this factor.
	alikeRates = 4

	setBytes = int64(unsafe.Sizeof(routeSet{})) + 8
)

func (r *routeSet) isPattern() bool { return r.pool != nil && r.shown == patternRoutes }

// show counts route, which showed the quota of r.
func (r *routeSet) show(route uint64) {
	known := min(int(r.shown), len(r.routes))
	if r.shown == patternRoutes || slices.Contains(r.routes[:known], route) {
		return
	}
	if known < len(r.routes) {
		r.routes[known] = route
	}
	r.shown++
}

// shapeOf hashes route, as appendRoute writes it, without the segment at an index. It reports
// false if there is no such segment, or if no other segment is a word.
func shapeOf(seed maphash.Seed, route []byte, at int) (shape uint64, ok bool) {
	var buf [1 + maxRoute]byte
	key := append(buf[:0], byte(at))
	index, words := -1, false
	for _, c := range route {
		if c == '/' {
			index++
		}
		if c == '/' || index < 0 || index != at {
			key = append(key, c)
			words = words || c != '/' && index >= 0
		}
	}
	if index < at || !words {
		return 0, false
	}
	return maphash.Bytes(seed, key), true
}

// find returns the set of a shape; nil if there is none.
func (p *patterns) find(shape uint64) *routeSet {
	for i := range p.sets {
		if p.sets[i].shape == shape {
			return &p.sets[i]
		}
	}
	return nil
}

// index notes which sets are patterns.
func (p *patterns) index() {
	p.wild, p.spare = 0, 0
	for i := range p.sets {
		if r := &p.sets[i]; r.isPattern() {
			p.wild |= 1 << r.at
			p.spare += int(r.seen) - 1
		}
	}
}

// forget removes the sets that showed b and returns how many they were.
func (p *patterns) forget(b *bucket) (n int) {
	before := len(p.sets)
	p.sets = slices.DeleteFunc(p.sets, func(r routeSet) bool { return r.pool == b })
	p.index()
	return before - len(p.sets)
}

// patternOf returns the quota of the pattern that req matches; nil if it matches none, or two
// with different quotas.
func (s *site) patternOf(req *http.Request) (b *bucket) {
	if s.patterns.wild == 0 || req == nil {
		return nil
	}
	var buf [maxRoute]byte
	route := appendRoute(buf[:0], req)
	for wild := s.patterns.wild; wild != 0; wild &= wild - 1 {
		shape, ok := shapeOf(s.tracker.seed, route, bits.TrailingZeros8(wild))
		if !ok {
			continue
		}
		r := s.patterns.find(shape)
		if r == nil || !r.isPattern() {
			continue
		}
		if b != nil && b != r.pool {
			return nil
		}
		b = r.pool
	}
	return b
}

// alike returns the quota that routes which differ from that of req in one segment have shown,
// if windows may state that quota; nil if there is none. open is how many responses can have
// arrived before the one that states windows although their requests were sent later.
func (s *site) alike(req *http.Request, windows []throttle.RemoteLimit, open int64, now time.Time) *bucket {
	if len(s.patterns.sets) == 0 || req == nil {
		return nil
	}
	var buf [maxRoute]byte
	route := appendRoute(buf[:0], req)
	for at := range maxSegments {
		shape, ok := shapeOf(s.tracker.seed, route, at)
		if !ok {
			continue
		}
		r := s.patterns.find(shape)
		if r == nil || r.pool == nil {
			continue
		}
		tolerated := open
		if r.isPattern() { // little is needed to show what is known
			tolerated = max(open, s.patterns.crowd.most)
		}
		if r.pool.mayState(windows, tolerated, now) {
			return r.pool
		}
	}
	return nil
}

// showed takes in that a response to req, of a route that was not known to have it, spoke of
// home. shown says that it showed home to be the quota that other routes had shown.
func (s *site) showed(req *http.Request, route uint64, home *bucket, shown bool) {
	var buf [maxRoute]byte
	path := appendRoute(buf[:0], req)
	for at := range maxSegments {
		shape, ok := shapeOf(s.tracker.seed, path, at)
		if !ok {
			continue
		}
		r := s.patterns.find(shape)
		if r == nil {
			if r = s.addSet(); r == nil {
				continue
			}
			*r = routeSet{shape: shape, pool: home, at: uint8(at)}
			r.show(route)
		}
		if r.pool != home {
			r.pool = nil
		} else if shown {
			r.show(route)
		}
		r.seen = min(r.seen+1, maxRoutes)
		s.patterns.latest++
		r.used = s.patterns.latest
	}
	s.patterns.index()
}

// addSet returns a place for a set, if need be of the one that was used longest ago among those
// that are no pattern and showed one quota. It returns nil if there is none.
func (s *site) addSet() *routeSet {
	p := &s.patterns
	if len(p.sets) < maxSets && s.budget.take(setBytes) {
		grown := make([]routeSet, len(p.sets)+1) // append would make room for more
		copy(grown, p.sets)
		p.sets = grown
		return &p.sets[len(p.sets)-1]
	}
	var oldest *routeSet
	for i := range p.sets {
		r := &p.sets[i]
		if r.pool != nil && !r.isPattern() && (oldest == nil || r.used < oldest.used) {
			oldest = r
		}
	}
	return oldest
}

// mayState reports whether windows may state the limits of b: just as large, with a reset that a
// window or a bucket of that size can have, and no more left than can be. open is how many
// responses that b does not know of can have arrived earlier, see alike. A quota that was found a
// moment ago has not taken in yet what the response states that showed it.
func (b *bucket) mayState(windows []throttle.RemoteLimit, open int64, now time.Time) (may bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.told) == 0 {
		return !b.gate.ajar && !b.gate.until.After(now) && b.est == nil
	}
	for _, w := range windows {
		t := b.toldIn(w)
		if t == nil {
			continue
		}
		w = t.price.in(w)
		if w.Limit != t.limit || !t.mayBe(w, open+b.flight.span()+t.limit/8, now) {
			return false
		}
		may = true
	}
	return may
}

// shows reports whether windows show that the limits of b are the ones that they state: more is
// used than by one request, and about as much as b knows of. A quota that no request used
// before looks like any other of its size.
func (b *bucket) shows(windows []throttle.RemoteLimit, open int64, now time.Time) (shown bool) {
	if !b.mayState(windows, open, now) {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, w := range windows {
		t := b.toldIn(w)
		if t == nil {
			continue
		}
		w = t.price.in(w)
		if over := !now.Before(t.reset.Add(-slackOf(w))); !over && w.Remaining < t.left(now)-open-b.flight.span()-t.limit/8 {
			return false
		}
		shown = shown || w.Limit-w.Remaining > 1
	}
	return shown
}

// toldIn returns the limit of b that w speaks of; nil if there is none.
func (b *bucket) toldIn(w throttle.RemoteLimit) *told {
	for i := range b.told {
		if t := &b.told[i]; countsRequests(w) && t.name == w.Name && t.per == w.Per {
			return t
		}
	}
	return nil
}

// mayBe reports whether w may be t as of now. open is how much less than w t may have left since
// responses arrive out of order.
func (t *told) mayBe(w throttle.RemoteLimit, open int64, now time.Time) bool {
	left := t.reset.Sub(now)
	if t.slots.are || left <= slackOf(w) {
		return true // what was left is over
	}
	apart := resetOf(w, now).Sub(t.reset)
	if -2*slackOf(w) < apart && apart < 2*slackOf(w) && w.Remaining <= t.left(now)+open {
		return true
	}
	return t.refill.kind != steps && t.mayFill(w, open, now)
}

// mayFill reports whether t may be a bucket that w states, too: the reset of a bucket is when it
// is full, so the resets and what is missing give the same rate.
func (t *told) mayFill(w throttle.RemoteLimit, open int64, now time.Time) bool {
	missing, span, passed := float64(t.limit-t.remaining), t.reset.Sub(t.at).Seconds(), now.Sub(t.at).Seconds()
	if missing <= 0 || span <= 0 || passed < 0 {
		return w.Remaining <= t.limit
	}
	back := int64(min(missing*passed/max(span-slackOf(w).Seconds(), span/2), missing)) + 1
	if w.Remaining > t.remaining+back+open {
		return false
	}
	rough := slackOf(w).Seconds()
	full, seconds := float64(w.Limit-w.Remaining)/missing*span, resetOf(w, now).Sub(now).Seconds()
	return seconds >= full/alikeRates-rough && seconds <= full*alikeRates+rough
}

// overtaken returns how many responses to requests that b granted can have arrived before the
// response to the oldest that is still without one, at most.
func (b *bucket) overtaken() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flight.span()
}

// span returns how many claims were granted from the oldest open one on; 0: none is open.
func (f *flight) span() int64 {
	for i, word := range f.words {
		if word != 0 && f.open > 0 {
			return int64(f.sent-f.base) - int64(i*64+bits.TrailingZeros64(word)) + 1
		}
	}
	return 0
}
