package rules

import (
	"net/http"
	"strings"
	"sync"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A rule is a limit and the way in which requests that match it get a key.
type rule struct {
	index   int // position in the order of the file
	limit   *Limit
	limiter *activeLimit
	parts   []part // parts of the key, for a limit that matches routes
	match   *match // nil for a limit of a descriptor
}

// A part is one value of the key of a rule.
type part struct {
	source  *valueSource // nil means a segment of the path
	segment int          // index of the segment
	tail    bool         // includes all segments that follow
}

// A search finds the limits of one request or of some descriptors. Searches are pooled.
type search struct {
	set    *Set
	req    *http.Request
	values [16]value // by index of the source; further sources are not cached
	parts  [maxDepth]string
	key    []byte
	hits   []hit
}

// A value is the value of a source for a request.
type value struct {
	text       string
	ok, cached bool
}

// A hit is a limit that was found, and the key of its claim.
type hit struct {
	rule *rule
	key  string
}

var searchPool = sync.Pool{New: func() any { return new(search) }}

// release clears s and returns it to the pool.
func (s *search) release() {
	s.reset()
	searchPool.Put(s)
}

// reset clears s. It keeps no strings of the request.
func (s *search) reset() {
	clear(s.hits)
	*s = search{key: s.key[:0], hits: s.hits[:0]}
	if cap(s.key) > 1<<12 {
		s.key = nil
	}
}

// value returns the value of a source for the request. It calls each source once per request, as
// long as there are no more sources than cached values.
func (s *search) value(from *valueSource) (string, bool) {
	if from.index >= len(s.values) {
		return from.value(s.req)
	}
	v := &s.values[from.index]
	if !v.cached {
		v.text, v.ok = from.value(s.req)
		v.cached = true
	}
	return v.text, v.ok
}

// descend finds the limits below n for the values of the request. The first depth parts of the key
// are set.
func (s *search) descend(n *node, depth int) {
	for _, g := range n.groups {
		if g.source == nil {
			continue
		}
		if v, ok := s.value(g.source); ok {
			if next := g.find(v); next != nil {
				s.descend(next, s.addNode(next, g.source, v, depth))
			}
		}
	}
}

// addNode adds the limit of n, which value from source has selected, and returns the number of parts of
// the key that are set then.
func (s *search) addNode(n *node, source *valueSource, value string, depth int) int {
	if n.keyed {
		s.parts[depth] = source.keyPart(value)
		depth++
	}
	if n.rule != nil {
		s.add(n.rule, s.joinParts(depth))
	}
	return depth
}

// matchDescriptor finds the limit of the node at which all entries of d end.
func (s *search) matchDescriptor(n *node, d Descriptor) {
	depth := 0
	for i, e := range d {
		g := n.byKey[e.Key]
		if g == nil {
			return
		}
		if n = g.find(e.Value); n == nil {
			return
		}
		if n.keyed {
			s.parts[depth] = hashIfLong(e.Value)
			depth++
		}
		if i == len(d)-1 && n.rule != nil {
			s.add(n.rule, s.joinParts(depth))
		}
	}
}

// joinParts returns the key made of the first n parts.
func (s *search) joinParts(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return s.parts[0]
	}
	s.key = s.key[:0]
	for _, p := range s.parts[:n] {
		s.key = appendPart(s.key, p)
	}
	return string(s.key)
}

// addRoute adds the limit of a route, with the key that the request has for it. Requests without
// one of the parts share the remaining key, unless the limit skips such requests.
func (s *search) addRoute(r *route) {
	for i, p := range r.rule.parts {
		v, ok := s.part(p)
		if !ok && r.rule.limit.skipUnidentified {
			return
		}
		s.parts[i] = p.source.keyPart(v)
	}
	s.add(r.rule, s.joinParts(len(r.rule.parts)))
}

func (s *search) part(p part) (string, bool) {
	if p.source != nil {
		return s.value(p.source)
	}
	left := cleanPath(s.req.URL.Path)
	for range p.segment {
		_, left, _ = strings.Cut(left, "/")
	}
	if !p.tail {
		left, _, _ = strings.Cut(left, "/")
	}
	return nonEmpty(left)
}

// add adds a limit in the order of the file. A limit that is already present is not added again.
func (s *search) add(r *rule, key string) {
	at := len(s.hits)
	for at > 0 && s.hits[at-1].rule.index >= r.index {
		if s.hits[at-1].rule == r {
			return
		}
		at--
	}
	s.hits = append(s.hits, hit{})
	copy(s.hits[at+1:], s.hits[at:])
	s.hits[at] = hit{r, key}
}

// applyReplaces removes the limits that others replace, and those that need not be asked.
func (s *search) applyReplaces() {
	kept := s.hits[:0]
	for _, h := range s.hits {
		if !s.replaced(h.rule.limit.Name) && !h.rule.skippable(s.set) {
			kept = append(kept, h)
		}
	}
	clear(s.hits[len(kept):])
	s.hits = kept
}

// replaced reports whether one of the hits replaces limits of a name. A hit that is replaced
// itself still replaces others.
func (s *search) replaced(name string) bool {
	if name == "" || !s.set.replaces[name] {
		return false
	}
	for _, h := range s.hits {
		for _, other := range h.rule.limit.Replaces {
			if other == name {
				return true
			}
		}
	}
	return false
}

// skippable reports whether r grants everything and no DecisionHook counts its decisions.
func (r *rule) skippable(set *Set) bool { return r.limit.Unlimited && set.config.DecisionHook == nil }

// addDemands adds the limits that were found to t.
func (s *search) addDemands(t *queue.Ticket) {
	for _, h := range s.hits {
		t.Add(throttle.Demand{Limiter: h.rule.limiter, Key: h.key, Cost: h.rule.limit.Cost})
	}
}
