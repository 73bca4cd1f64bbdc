package rules

import (
	"net/http"
	"strings"
	"sync"

	"github.com/heed-go/heed/throttle"
	"github.com/heed-go/heed/throttle/queue"
)

// A rule is a limit, and how requests that match it get a key.
type rule struct {
	index   int // in the order of the file
	limit   *Limit
	limiter *activeLimit
	parts   []part // of the key, for a limit that matches routes
	match   *match // nil: descriptors lead to it
}

// A part is one value of the key of a rule.
type part struct {
	source  *valueSource // nil: a segment of the path
	segment int          // its number
	tail    bool         // and all that follow it
}

// A search is for the limits of one request, or of one descriptor. It is used again.
type search struct {
	set    *Set
	req    *http.Request
	values [16]value // by source, for the first of them
	parts  [maxDepth]string
	key    []byte
	hits   []hit
}

// A value is what a request has under a source.
type value struct {
	text       string
	ok, cached bool
}

// A hit is a limit that was found, and the key under which it is asked.
type hit struct {
	rule *rule
	key  string
}

var searchPool = sync.Pool{New: func() any { return new(search) }}

// release gives s back, without anything of the request.
func (s *search) release() {
	clear(s.hits)
	*s = search{key: s.key[:0], hits: s.hits[:0]}
	if cap(s.key) > 1<<12 {
		s.key = nil
	}
	searchPool.Put(s)
}

// value returns what the request has under a source. A source is asked once.
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

// descend finds the limits below n for the values that the request has. The first
// depth parts of the key are known.
func (s *search) descend(n *node, depth int) {
	for _, g := range n.groups {
		if g.source == nil {
			continue
		}
		if v, ok := s.value(g.source); ok {
			if next := g.find(v); next != nil {
				s.descend(next, s.addNode(next, v, depth))
			}
		}
	}
}

// addNode notes the limit of n, which value has led to, and returns how many parts
// of the key are known then.
func (s *search) addNode(n *node, value string, depth int) int {
	if n.keyed {
		s.parts[depth] = hashIfLong(value)
		depth++
	}
	if n.rule != nil {
		s.add(n.rule, s.joinParts(depth))
	}
	return depth
}

// matchDescriptor finds the limit to which the entries of a descriptor lead, all of them.
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

// joinParts returns the key of the first n parts.
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

// addRoute notes the limit of a route, with the key that the request gives it. Requests
// without one of its parts share what is left of the key, unless the limit skips them.
func (s *search) addRoute(r *route) {
	for i, p := range r.rule.parts {
		v, ok := s.part(p)
		if !ok && r.rule.limit.skipUnidentified {
			return
		}
		s.parts[i] = hashIfLong(v)
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

// add notes that a limit was found. One that is found twice counts once.
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

// applyReplaces drops the limits that others replace, and those which nobody needs to ask.
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

// replaced reports whether one of the hits replaces limits of a name. One that is
// replaced itself still does.
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

// skippable reports whether r grants everything, and nobody wants to know.
func (r *rule) skippable(set *Set) bool { return r.limit.Unlimited && set.config.DecisionHook == nil }

// addDemands adds to t what was found.
func (s *search) addDemands(t *queue.Ticket) {
	free := 0
	for i := range t.Demands {
		if t.Demands[i].Limiter == nil {
			free++
		}
	}
	alone := len(s.hits)
	if alone > free {
		alone = max(free-1, 0)
	}
	for _, h := range s.hits[:alone] {
		t.Add(throttle.Demand{Limiter: h.rule.limiter, Key: h.key, Cost: h.rule.limit.Cost})
	}
	if rest := s.hits[alone:]; len(rest) > 0 {
		b := s.set.bundles.limiterFor(rest)
		t.Add(throttle.Demand{Limiter: b, Key: s.joinKeys(rest)})
	}
}

// joinKeys returns the keys of all hits as one.
func (s *search) joinKeys(hits []hit) string {
	s.key = s.key[:0]
	for _, h := range hits {
		s.key = appendPart(s.key, h.key)
	}
	return string(s.key)
}
