package quota

import (
	"context"
	"crypto/sha256"
	"hash/maphash"
	"math/bits"
	"net/http"
	"slices"
	"strings"
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
	sets        []routeSet // at most maxSets
	varying     uint8      // bit i: a set that is a pattern differs in segment i
	extraRoutes int        // how many remembered routes are of patterns, beyond one of each
	latest      uint32     // number of the latest use of a set
	peak        peakInFlight
}

// A peakInFlight is how many requests were in flight together, at most. Their responses may state what
// is left in any order.
type peakInFlight struct {
	max int64
	at  time.Time // when there were so many
}

// crowdFor is how long a crowd is remembered.
const peakFor = 10 * time.Second

func (p *peakInFlight) add(n int64, now time.Time) {
	if n >= p.max || now.Sub(p.at) > peakFor {
		p.max, p.at = n, now
	}
}

// A routeSet is the routes that differ in one segment only.
type routeSet struct {
	shape     uint64                    // see shapeOf
	quota     *quota                    // quota that its routes showed; nil: they showed two
	routes    [patternRoutes - 1]uint64 // the first that showed it
	used      uint32                    // number of the latest use
	numRoutes uint16                    // how many routes were remembered with the quota
	numShown  uint8                     // how many of them showed it, at most patternRoutes
	at        uint8                     // index of the segment
}

const (
	patternRoutes = 3  // routes that showed one quota make a pattern
	maxSets       = 24 // sets of one site

	// The rate at which a bucket is refilled follows from what is missing and when it is full. Both
	// are stated roughly and for different moments, so two rates are of one bucket up to this factor.
	alikeRates = 4

	setBytes = int64(unsafe.Sizeof(routeSet{})) + 8
)

func (r *routeSet) isPattern() bool { return r.quota != nil && r.numShown == patternRoutes }

// show counts route, which showed the quota of r.
func (r *routeSet) show(route uint64) {
	known := min(int(r.numShown), len(r.routes))
	if r.numShown == patternRoutes || slices.Contains(r.routes[:known], route) {
		return
	}
	if known < len(r.routes) {
		r.routes[known] = route
	}
	r.numShown++
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
	p.varying, p.extraRoutes = 0, 0
	for i := range p.sets {
		if r := &p.sets[i]; r.isPattern() {
			p.varying |= 1 << r.at
			p.extraRoutes += int(r.numRoutes) - 1
		}
	}
}

// forget removes the sets that showed b and returns how many they were.
func (p *patterns) forget(q *quota) (n int) {
	before := len(p.sets)
	p.sets = slices.DeleteFunc(p.sets, func(r routeSet) bool { return r.quota == q })
	p.index()
	return before - len(p.sets)
}

// patternOf returns the quota of the pattern that req matches; nil if it matches none, or two
// with different quotas.
func (ep *endpoint) patternOf(req *http.Request) (q *quota) {
	if ep.patterns.varying == 0 || req == nil {
		return nil
	}
	var buf [maxRoute]byte
	route := appendRoute(buf[:0], req)
	for wild := ep.patterns.varying; wild != 0; wild &= wild - 1 {
		shape, ok := shapeOf(ep.tracker.seed, route, bits.TrailingZeros8(wild))
		if !ok {
			continue
		}
		r := ep.patterns.find(shape)
		if r == nil || !r.isPattern() {
			continue
		}
		if q != nil && q != r.quota {
			return nil
		}
		q = r.quota
	}
	return q
}

// quotaOfSimilar returns the quota that routes which differ from that of req in one segment have shown,
// if windows may state that quota; nil if there is none. open is how many responses can have
// arrived before the one that states windows although their requests were sent later.
func (ep *endpoint) quotaOfSimilar(req *http.Request, windows []throttle.RemoteLimit, open int64, now time.Time) *quota {
	if len(ep.patterns.sets) == 0 || req == nil {
		return nil
	}
	var buf [maxRoute]byte
	route := appendRoute(buf[:0], req)
	for at := range maxSegments {
		shape, ok := shapeOf(ep.tracker.seed, route, at)
		if !ok {
			continue
		}
		r := ep.patterns.find(shape)
		if r == nil || r.quota == nil {
			continue
		}
		tolerated := open
		if r.isPattern() { // little is needed to show what is known
			tolerated = max(open, ep.patterns.peak.max)
		}
		if r.quota.mayState(windows, tolerated, now) {
			return r.quota
		}
	}
	return nil
}

// recordShown takes in that a response to req, of a route that was not known to have it, spoke of
// home. shown says that it showed home to be the quota that other routes had shown.
func (ep *endpoint) recordShown(req *http.Request, route uint64, known *quota, shown bool) {
	var buf [maxRoute]byte
	path := appendRoute(buf[:0], req)
	for at := range maxSegments {
		shape, ok := shapeOf(ep.tracker.seed, path, at)
		if !ok {
			continue
		}
		r := ep.patterns.find(shape)
		if r == nil {
			if r = ep.addSet(); r == nil {
				continue
			}
			*r = routeSet{shape: shape, quota: known, at: uint8(at)}
			r.show(route)
		}
		if r.quota != known {
			r.quota = nil
		} else if shown {
			r.show(route)
		}
		r.numRoutes = min(r.numRoutes+1, maxRoutes)
		ep.patterns.latest++
		r.used = ep.patterns.latest
	}
	ep.patterns.index()
}

// addSet returns a place for a set, if need be of the one that was used longest ago among those
// that are no pattern and showed one quota. It returns nil if there is none.
func (ep *endpoint) addSet() *routeSet {
	p := &ep.patterns
	if len(p.sets) < maxSets && ep.memory.reserve(setBytes) {
		grown := make([]routeSet, len(p.sets)+1) // append would make room for more
		copy(grown, p.sets)
		p.sets = grown
		return &p.sets[len(p.sets)-1]
	}
	var oldest *routeSet
	for i := range p.sets {
		r := &p.sets[i]
		if r.quota != nil && !r.isPattern() && (oldest == nil || r.used < oldest.used) {
			oldest = r
		}
	}
	return oldest
}

// mayState reports whether windows may state the limits of b: just as large, with a reset that a
// window or a bucket of that size can have, and no more left than can be. open is how many
// responses that b does not know of can have arrived earlier, see alike. A quota that was found a
// moment ago has not taken in yet what the response states that showed it.
func (q *quota) mayState(windows []throttle.RemoteLimit, open int64, now time.Time) (may bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.estimates) == 0 {
		return !q.hold.active && !q.hold.until.After(now) && q.inference == nil
	}
	for _, w := range windows {
		e := q.estimateOf(w)
		if e == nil {
			continue
		}
		w = e.cost.inRequests(w)
		if w.Limit != e.limit || !e.mayState(w, open+q.inFlight.span()+e.limit/8, now) {
			return false
		}
		may = true
	}
	return may
}

// shows reports whether windows show that the limits of b are the ones that they state: more is
// used than by one request, and about as much as b knows of. A quota that no request used
// before looks like any other of its size.
func (q *quota) shows(windows []throttle.RemoteLimit, open int64, now time.Time) (shown bool) {
	if !q.mayState(windows, open, now) {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range windows {
		e := q.estimateOf(w)
		if e == nil {
			continue
		}
		w = e.cost.inRequests(w)
		if over := !now.Before(e.reset.Add(-toleranceOf(w))); !over && w.Remaining < e.left(now)-open-q.inFlight.span()-e.limit/8 {
			return false
		}
		shown = shown || w.Limit-w.Remaining > 1
	}
	return shown
}

// estimateOf returns the limit of b that w speaks of; nil if there is none.
func (q *quota) estimateOf(w throttle.RemoteLimit) *estimate {
	for i := range q.estimates {
		if e := &q.estimates[i]; countsRequests(w) && e.name == w.Name && e.per == w.Per {
			return e
		}
	}
	return nil
}

// mayState reports whether w may be t as of now. open is how much less than w t may have left since
// responses arrive out of order.
func (e *estimate) mayState(w throttle.RemoteLimit, open int64, now time.Time) bool {
	left := e.reset.Sub(now)
	if e.concurrency.confirmed || left <= toleranceOf(w) {
		return true // what was left is over
	}
	apart := resetOf(w, now).Sub(e.reset)
	if -2*toleranceOf(w) < apart && apart < 2*toleranceOf(w) && w.Remaining <= e.left(now)+open {
		return true
	}
	return e.refill.kind != refillsAtReset && e.mayFill(w, open, now)
}

// mayFill reports whether t may be a bucket that w states, too: the reset of a bucket is when it
// is full, so the resets and what is missing give the same rate.
func (e *estimate) mayFill(w throttle.RemoteLimit, open int64, now time.Time) bool {
	missing, span, passed := float64(e.limit-e.remaining), e.reset.Sub(e.at).Seconds(), now.Sub(e.at).Seconds()
	if missing <= 0 || span <= 0 || passed < 0 {
		return w.Remaining <= e.limit
	}
	back := int64(min(missing*passed/max(span-toleranceOf(w).Seconds(), span/2), missing)) + 1
	if w.Remaining > e.remaining+back+open {
		return false
	}
	rough := toleranceOf(w).Seconds()
	full, seconds := float64(w.Limit-w.Remaining)/missing*span, resetOf(w, now).Sub(now).Seconds()
	return seconds >= full/alikeRates-rough && seconds <= full*alikeRates+rough
}

// maxReordered returns how many responses to requests that b granted can have arrived before the
// response to the oldest that is still without one, at most.
func (q *quota) maxReordered() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.inFlight.span()
}

// span returns how many claims were granted from the oldest open one on; 0: none is open.
func (f *inFlight) span() int64 {
	for i, word := range f.words {
		if word != 0 && f.open > 0 {
			return int64(f.sent-f.base) - int64(i*64+bits.TrailingZeros64(word)) + 1
		}
	}
	return 0
}

// maxSegments of a path tell routes apart; what follows is the same route.
const maxSegments = 8

// maxSegment is the length of a segment that may be a word.
const maxSegment = 24

// routeOf hashes what tells the routes of an API apart: whether it reads or
// writes, and the path without what looks like an identifier.
//
//	GET /v1/users/4711/orders   ->   reads v1 users * orders   (v1 counts as one, too)
//
// A request with a quota name is of the route with that name, whatever its path.
func routeOf(seed maphash.Seed, req *http.Request) uint64 {
	var buf [maxRoute]byte
	route := appendRoute(buf[:0], req)
	return marked(maphash.Bytes(seed, route), route)
}

// namedRoute is the bit of a hash that says that the route is a quota name.
const namedRoute = 1 << 63

// marked returns hash, that of route, with namedRoute as it is.
func marked(hash uint64, route []byte) uint64 {
	if len(route) > 0 && route[0] == nameMark {
		return hash | namedRoute
	}
	return hash &^ namedRoute
}

// nameMark begins a route that is a quota name.
const nameMark = '='

type nameKey struct{}

// WithName returns a context whose requests use the quota of a server that the program calls
// name, where the URL does not tell which quota that is: a model or a deployment in the body of
// the request, or a partition. Requests of one account with different names share no quota,
// unless the server states that a rejection is meant for all, and requests with one name share
// one, whatever their paths. An empty name means that the path tells. heed.RequestOptions has a
// field QuotaName for it.
func WithName(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nameKey{}, name)
}

// nameOf returns the quota name of req; "" if it has none.
func nameOf(req *http.Request) string {
	name, _ := req.Context().Value(nameKey{}).(string)
	return name
}

// maxRoute is the length of a route at most.
const maxRoute = 1 + maxSegments*(1+maxSegment)

func appendRoute(buf []byte, req *http.Request) []byte {
	if name := nameOf(req); name != "" {
		buf = append(buf, nameMark)
		if len(name) <= maxRoute-1 {
			return append(buf, name...)
		}
		sum := sha256.Sum256([]byte(name))
		return append(buf, sum[:]...)
	}
	if req.Method == "" || req.Method == http.MethodGet || req.Method == http.MethodHead {
		buf = append(buf, 'r')
	}
	path := strings.Trim(req.URL.Path, "/")
	for range maxSegments {
		segment, rest, more := strings.Cut(path, "/")
		buf = append(buf, '/')
		if !looksLikeID(segment) {
			buf = append(buf, segment...)
		}
		if !more {
			break
		}
		path = rest
	}
	return buf
}

// looksLikeID reports whether a segment of a path names one thing among many:
// with a digit or an @, or too long for a word.
func looksLikeID(segment string) bool {
	return len(segment) > maxSegment || strings.ContainsAny(segment, "0123456789@")
}
