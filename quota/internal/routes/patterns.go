package routes

import (
	"hash/maphash"
	"iter"
	"math/bits"
	"net/http"
	"slices"
	"unsafe"
)

const (
	patternRoutes = 3  // routes of a set that must show its quota to make it a pattern
	maxSets       = 24 // sets of one host

	// MaxRoutes is the number of routes of a set that are counted at most.
	MaxRoutes = 112
)

// Patterns are sets of routes of one host that differ in one path segment only, such as
// /pages/first-steps and /pages/about. When three routes of a set have shown the same quota, the
// set is a pattern: its other routes probably have that quota, too. A set whose routes showed two quotas is
// never a pattern. Routes without a common segment make no set.
//
// A quota is any value but the zero one. Patterns are not safe for concurrent use. The zero Patterns are empty.
type Patterns[Q comparable] struct {
	sets        []set[Q] // at most maxSets
	varying     uint8    // bit i is set if a set that is a pattern differs in segment i
	extraRoutes int      // routes that were recorded for patterns, beyond one for each pattern
	latest      uint32   // number of the latest use of a set
}

// A set is the routes that differ in one segment only.
type set[Q comparable] struct {
	shape     uint64                    // see shapeOf
	quota     Q                         // that its routes have shown; zero: they have shown two
	routes    [patternRoutes - 1]uint64 // the first routes that showed it
	used      uint32                    // number of the latest use
	numRoutes uint16                    // routes that were recorded for the set, at most MaxRoutes
	numShown  uint8                     // routes that showed the quota, at most patternRoutes
	at        uint8                     // index of the segment in which they differ
}

// hasQuota reports whether the routes of r have shown one quota.
func (r *set[Q]) hasQuota() bool {
	var none Q
	return r.quota != none
}

func (r *set[Q]) isPattern() bool { return r.numShown == patternRoutes && r.hasQuota() }

// show records that route has shown the quota of r.
func (r *set[Q]) show(route uint64) {
	n := min(int(r.numShown), len(r.routes))
	if r.numShown == patternRoutes || slices.Contains(r.routes[:n], route) {
		return
	}
	if n < len(r.routes) {
		r.routes[n] = route
	}
	r.numShown++
}

// shapeOf returns a hash of route, as Append writes it, without the segment with index at. It
// reports false if there is no such segment, or if no other segment is a word.
func shapeOf(seed maphash.Seed, route []byte, at int) (shape uint64, ok bool) {
	var buf [1 + Max]byte
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
func shapes(seed maphash.Seed, req *http.Request, segments uint8) iter.Seq2[int, uint64] {
	return func(yield func(at int, shape uint64) bool) {
		var buf [Max]byte
		route := Append(buf[:0], req)
		for ; segments != 0; segments &= segments - 1 {
			at := bits.TrailingZeros8(segments)
			if shape, ok := shapeOf(seed, route, at); ok && !yield(at, shape) {
				return
			}
		}
	}
}

const allSegments = 1<<maxSegments - 1 // for shapes

// Of returns the quota of the pattern that req matches. It returns zero if req is nil or matches no pattern,
// or patterns with different quotas. seed is the same for all calls.
func (p *Patterns[Q]) Of(seed maphash.Seed, req *http.Request) (q Q) {
	if p.varying == 0 || req == nil {
		return q
	}
	found := false
	for _, shape := range shapes(seed, req, p.varying) {
		r := p.find(shape)
		if r == nil || !r.isPattern() {
			continue
		}
		if found && q != r.quota {
			var none Q
			return none
		}
		q, found = r.quota, true
	}
	return q
}

// Similar returns the quota of each set of the route of req whose routes have shown one quota, and whether
// the set is a pattern. There is none if req is nil.
func (p *Patterns[Q]) Similar(seed maphash.Seed, req *http.Request) iter.Seq2[Q, bool] {
	return func(yield func(q Q, pattern bool) bool) {
		if len(p.sets) == 0 || req == nil {
			return
		}
		for _, shape := range shapes(seed, req, allSegments) {
			if r := p.find(shape); r != nil && r.hasQuota() && !yield(r.quota, r.isPattern()) {
				return
			}
		}
	}
}

// Record records in the sets of route, which is that of req, that a response concerned q, and that route
// was not known to have q. shown reports whether the response showed that the route has the same quota as
// the others that have shown q. reserve reserves the memory of a new set, or reports false.
func (p *Patterns[Q]) Record(seed maphash.Seed, req *http.Request, route uint64, q Q, shown bool, reserve func(bytes int64) bool) {
	for at, shape := range shapes(seed, req, allSegments) {
		r := p.find(shape)
		if r == nil {
			if r = p.add(reserve); r == nil {
				continue
			}
			*r = set[Q]{shape: shape, quota: q, at: uint8(at)} //nolint:gosec // less than maxSegments
			r.show(route)
		}
		if r.quota != q {
			var none Q
			r.quota = none
		} else if shown {
			r.show(route)
		}
		r.numRoutes = min(r.numRoutes+1, MaxRoutes)
		p.latest++
		r.used = p.latest
	}
	p.reindex()
}

// find returns the set of a shape; nil if there is none.
func (p *Patterns[Q]) find(shape uint64) *set[Q] {
	for i := range p.sets {
		if p.sets[i].shape == shape {
			return &p.sets[i]
		}
	}
	return nil
}

// add returns a new set, or, if there are too many, the one used least recently among those that have
// shown one quota and are no patterns. It returns nil if there is none.
func (p *Patterns[Q]) add(reserve func(bytes int64) bool) *set[Q] {
	if len(p.sets) < maxSets && reserve(p.setBytes()) {
		grown := make([]set[Q], len(p.sets)+1) // append would allocate more
		copy(grown, p.sets)
		p.sets = grown
		return &p.sets[len(p.sets)-1]
	}
	var oldest *set[Q]
	for i := range p.sets {
		r := &p.sets[i]
		if r.hasQuota() && !r.isPattern() && (oldest == nil || r.used < oldest.used) {
			oldest = r
		}
	}
	return oldest
}

// Forget removes the sets of q and returns the number of bytes that were reserved for them.
func (p *Patterns[Q]) Forget(q Q) (bytes int64) {
	before := p.Bytes()
	p.sets = slices.DeleteFunc(p.sets, func(r set[Q]) bool { return r.quota == q })
	p.reindex()
	return before - p.Bytes()
}

// reindex updates the fields that are derived from sets.
func (p *Patterns[Q]) reindex() {
	p.varying, p.extraRoutes = 0, 0
	for i := range p.sets {
		if r := &p.sets[i]; r.isPattern() {
			p.varying |= 1 << r.at
			p.extraRoutes += int(r.numRoutes) - 1
		}
	}
}

// ExtraRoutes returns how many routes were recorded for patterns, beyond one for each pattern.
func (p *Patterns[Q]) ExtraRoutes() int { return p.extraRoutes }

// Bytes returns the number of bytes that are reserved for all sets.
func (p *Patterns[Q]) Bytes() int64 { return int64(len(p.sets)) * p.setBytes() }

// setBytes is the size of a set, with its place in the list.
func (*Patterns[Q]) setBytes() int64 { return int64(unsafe.Sizeof(set[Q]{})) + 8 }
