package quota

import (
	"context"
	"crypto/sha256"
	"hash/maphash"
	"iter"
	"math/bits"
	"net/http"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/heed-go/heed/quota/internal/statedlimit"
	"github.com/heed-go/heed/throttle"
)

const (
	maxSegments = 8                              // path segments that distinguish routes; the others are ignored
	maxSegment  = 24                             // bytes of a segment that may be a word
	maxRoute    = 1 + maxSegments*(1+maxSegment) // bytes that appendRoute appends at most

	nameMark   = '='     // begins a route that is a quota name
	namedRoute = 1 << 63 // bit of the hash of such a route
)

type nameKey struct{}

// WithName returns a context whose requests use the quota of a server that the program calls
// name, where the URL does not identify that quota: if it depends on a model or a deployment in
// the body of the request, or on a partition. Requests of one account with different names share
// no quota, unless the server states that a rejection concerns the whole account. Requests with
// one name share a quota, whatever their paths. An empty name means that the path identifies the
// quota. heed.RequestOptions has a field QuotaName for it.
func WithName(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nameKey{}, name)
}

// routeOf returns a hash of the route of req: whether it reads or writes, and its path without
// the segments that look like identifiers.
//
//	GET /v1/users/4711/orders   ->   reads * users * orders   (v1 contains a digit, too)
//
// A request with a quota name has the route of that name, whatever its path.
func routeOf(seed maphash.Seed, req *http.Request) uint64 {
	var buf [maxRoute]byte
	route := appendRoute(buf[:0], req)
	return marked(maphash.Bytes(seed, route), route)
}

// marked returns hash, that of route, with the bit namedRoute set if and only if route is a quota
// name.
func marked(hash uint64, route []byte) uint64 {
	if route[0] == nameMark {
		return hash | namedRoute
	}
	return hash &^ namedRoute
}

// isNamed reports whether route is the hash of a quota name.
func isNamed(route uint64) bool { return route&namedRoute != 0 }

// appendRoute appends the route of req to buf. A path segment is taken for an identifier, one of
// many, if it contains a digit or an @, or is too long for a word.
func appendRoute(buf []byte, req *http.Request) []byte {
	if name, _ := req.Context().Value(nameKey{}).(string); name != "" {
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
		isID := len(segment) > maxSegment
		for i := 0; i < len(segment) && !isID; i++ {
			isID = '0' <= segment[i] && segment[i] <= '9' || segment[i] == '@'
		}
		if !isID {
			buf = append(buf, segment...)
		}
		if !more {
			break
		}
		path = rest
	}
	return buf
}

const (
	patternRoutes = 3  // routes of a set that must show its quota to make it a pattern
	maxSets       = 24 // sets of one endpoint
	setBytes      = int64(unsafe.Sizeof(routeSet{})) + 8

	// peakMaxAge is the time for which patterns.peak is remembered.
	peakMaxAge = 10 * time.Second
)

// patterns are sets of routes of one endpoint that differ in one path segment only, such as
// /pages/first-steps and /pages/about. When three routes of a set have shown the same quota, the
// set is a pattern: its other routes begin with that quota instead of the unknown one. A set whose
// routes showed two quotas is never a pattern. Routes without a common segment make no set.
//
// endpoint.mu guards all fields. Patterns are local to a process: updates contain hashes of routes
// only.
type patterns struct {
	sets        []routeSet // at most maxSets
	varying     uint8      // bit i is set if a set that is a pattern differs in segment i
	extraRoutes int        // routes that were remembered for patterns, beyond one for each pattern
	latest      uint32     // number of the latest use of a set

	// The most requests of one quota that were in flight together, whose responses can state the
	// remaining units in any order.
	peak   int64
	peakAt time.Time
}

// A routeSet is the routes that differ in one segment only.
type routeSet struct {
	shape     uint64                    // see shapeOf
	quota     *quota                    // that its routes have shown; nil: they have shown two
	routes    [patternRoutes - 1]uint64 // the first routes that showed it
	used      uint32                    // number of the latest use
	numRoutes uint16                    // routes that were remembered for the set
	numShown  uint8                     // routes that showed the quota, at most patternRoutes
	at        uint8                     // index of the segment in which they differ
}

func (r *routeSet) isPattern() bool { return r.quota != nil && r.numShown == patternRoutes }

// show records that route has shown the quota of r.
func (r *routeSet) show(route uint64) {
	n := min(int(r.numShown), len(r.routes))
	if r.numShown == patternRoutes || slices.Contains(r.routes[:n], route) {
		return
	}
	if n < len(r.routes) {
		r.routes[n] = route
	}
	r.numShown++
}

// shapeOf returns a hash of route, as appendRoute writes it, without the segment with index at. It
// reports false if there is no such segment, or if no other segment is a word.
func shapeOf(seed maphash.Seed, route []byte, at int) (shape uint64, ok bool) {
	var buf [1 + maxRoute]byte
	key := append(buf[:0], byte(at))
	index, words := -1, false
	for _, c := range route {
		if c == '/' {
			index++
		}
		if c == '/' || index != at {
			key = append(key, c)
			words = words || c != '/' && index >= 0
		}
	}
	if index < at || !words {
		return 0, false
	}
	return maphash.Bytes(seed, key), true
}

// shapes returns the shapes of the route of req with the indexes of their segments, for each index
// whose bit is set in segments.
func (ep *endpoint) shapes(req *http.Request, segments uint8) iter.Seq2[int, uint64] {
	return func(yield func(at int, shape uint64) bool) {
		var buf [maxRoute]byte
		route := appendRoute(buf[:0], req)
		for ; segments != 0; segments &= segments - 1 {
			at := bits.TrailingZeros8(segments)
			if shape, ok := shapeOf(ep.tracker.seed, route, at); ok && !yield(at, shape) {
				return
			}
		}
	}
}

const allSegments = 1<<maxSegments - 1 // for shapes

// find returns the set of a shape; nil if there is none.
func (p *patterns) find(shape uint64) *routeSet {
	for i := range p.sets {
		if p.sets[i].shape == shape {
			return &p.sets[i]
		}
	}
	return nil
}

// reindex updates the fields that are derived from sets.
func (p *patterns) reindex() {
	p.varying, p.extraRoutes = 0, 0
	for i := range p.sets {
		if r := &p.sets[i]; r.isPattern() {
			p.varying |= 1 << r.at
			p.extraRoutes += int(r.numRoutes) - 1
		}
	}
}

// forget removes the sets of q and returns their number.
func (p *patterns) forget(q *quota) (n int) {
	before := len(p.sets)
	p.sets = slices.DeleteFunc(p.sets, func(r routeSet) bool { return r.quota == q })
	p.reindex()
	return before - len(p.sets)
}

// patternOf returns the quota of the pattern that req matches. It returns nil if req is nil or
// matches no pattern, or patterns with different quotas.
func (ep *endpoint) patternOf(req *http.Request) (q *quota) {
	if ep.patterns.varying == 0 || req == nil {
		return nil
	}
	for _, shape := range ep.shapes(req, ep.patterns.varying) {
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

// quotaOfSimilar returns the quota that a set of the route of req has shown, if that may have
// limits. It returns nil if there is none. reordered is how many responses to later requests may
// have arrived before the one that states limits.
func (ep *endpoint) quotaOfSimilar(req *http.Request, limits []throttle.RemoteLimit, reordered int64, now time.Time) *quota {
	if len(ep.patterns.sets) == 0 || req == nil {
		return nil
	}
	for _, shape := range ep.shapes(req, allSegments) {
		r := ep.patterns.find(shape)
		if r == nil || r.quota == nil {
			continue
		}
		tolerated := reordered
		if r.isPattern() { // the quota of a pattern is likely to be that of one more route
			tolerated = max(reordered, ep.patterns.peak)
		}
		if may, _ := r.quota.matches(limits, tolerated, now); may {
			return r.quota
		}
	}
	return nil
}

// recordShown records in the sets of route, which is that of req, that a response concerned q, and
// that route was not known to have q. shown reports whether the response showed that the route has
// the same quota as the others that have shown q, see matches.
func (ep *endpoint) recordShown(req *http.Request, route uint64, q *quota, shown bool) {
	for at, shape := range ep.shapes(req, allSegments) {
		r := ep.patterns.find(shape)
		if r == nil {
			if r = ep.addSet(); r == nil {
				continue
			}
			*r = routeSet{shape: shape, quota: q, at: uint8(at)} //nolint:gosec // less than maxSegments
			r.show(route)
		}
		if r.quota != q {
			r.quota = nil
		} else if shown {
			r.show(route)
		}
		r.numRoutes = min(r.numRoutes+1, maxRoutes)
		ep.patterns.latest++
		r.used = ep.patterns.latest
	}
	ep.patterns.reindex()
}

// addSet returns a new set, or, if there are too many, the one used least recently among those
// that have shown one quota and are no patterns. It returns nil if there is none.
func (ep *endpoint) addSet() *routeSet {
	p := &ep.patterns
	if len(p.sets) < maxSets && ep.reserve(setBytes) {
		grown := make([]routeSet, len(p.sets)+1) // append would allocate more
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

// matches compares limits, which a response states, with those of q. may is set if the response may
// concern q: the limits have the sizes that q knows, a reset that such a window or bucket can have,
// and no more units left than possible. A new quota may have any limits until it has observed the
// response that it was added for. shown is set if the response shows that these are the limits of q:
// more than one unit is used, and about as many as q knows of. An unused quota cannot be
// distinguished from any other of its size. reordered is how many responses that q has not observed
// may have arrived earlier.
func (q *quota) matches(limits []throttle.RemoteLimit, reordered int64, now time.Time) (may, shown bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.estimates) == 0 {
		return !q.hold.Active && !q.hold.Until.After(now) && q.inference == nil, false
	}
	few := false
	for _, l := range limits {
		i, l := q.estimateOf(l)
		if i < 0 {
			continue
		}
		e := &q.estimates[i]
		tolerated := reordered + q.inFlight.Span() + e.Limit/8
		if l.Limit != e.Limit || !e.MayBe(l, tolerated, now) {
			return false, false
		}
		over := !now.Before(e.Reset.Add(-statedlimit.ToleranceOf(l)))
		may, few, shown = true, few || !over && l.Remaining < e.Left(now)-tolerated, shown || l.Limit-l.Remaining > 1
	}
	return may, shown && !few
}
