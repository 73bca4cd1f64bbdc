package rules

import (
	"slices"
	"strings"
)

// A node is one descriptor of a file with the descriptors nested in it. The root has no
// descriptor.
//
//	root ── message_type ── marketing ── to_number ── any    5 a day for each number
//	     ╲─ to_number ── any                                 100 a day for each number
//
// A node has one group per key, and a group has one node per value. A node with a literal value is
// found by one map lookup, however many there are.
type node struct {
	rule   *rule // nil means no limit
	keyed  bool  // the value of the request is part of the key of all limits at and below the node
	groups []*group
	byKey  map[string]*group
}

// A group holds all descriptors with the same key below one node.
type group struct {
	key    string
	source *valueSource // source of the values of requests; nil means that only Set.Add supplies values
	exact  map[string]*node
	wild   patterns
	any    *node // descriptor without a value; nil if there is none
}

// group returns the group of a key below n. It creates one if necessary.
func (n *node) group(key string, s *valueSource) *group {
	if g := n.byKey[key]; g != nil {
		return g
	}
	g := &group{key: key, source: s, exact: map[string]*node{}}
	if n.byKey == nil {
		n.byKey = map[string]*group{}
	}
	n.byKey[key] = g
	n.groups = append(n.groups, g)
	return g
}

// add adds a node for a value to g; "" means any value. It reports false if g already has a node
// for the value.
func (g *group) add(value string, n *node) bool {
	switch {
	case value == "":
		if g.any != nil {
			return false
		}
		g.any = n
	case g.exact[value] != nil:
		return false
	default:
		g.exact[value] = n
		if strings.Contains(value, "*") {
			g.wild.add(value, n)
		}
	}
	return true
}

// find returns the most specific node for a value: the node with that value, otherwise the first
// matching pattern of the file, otherwise the node for any value. It returns nil if there is none.
func (g *group) find(value string) *node {
	if n := g.exact[value]; n != nil {
		return n
	}
	if n := g.wild.find(value); n != nil {
		return n
	}
	return g.any
}

// patterns holds values that contain "*", in the order of the file. They are indexed by the text
// before the first "*": a thousand patterns whose prefixes have five different lengths need five
// map lookups.
type patterns struct {
	lengths  []int // different lengths of the prefixes
	byPrefix map[string][]pattern
	count    int
}

// A pattern is a value in which each "*" matches any text, including an empty one.
type pattern struct {
	order int
	parts []string // the texts between "*"; the first is the prefix
	node  *node
}

func (p *patterns) add(value string, n *node) {
	parts := strings.Split(value, "*")
	prefix := parts[0]
	if p.byPrefix == nil {
		p.byPrefix = map[string][]pattern{}
	}
	if !slices.Contains(p.lengths, len(prefix)) {
		p.lengths = append(p.lengths, len(prefix))
	}
	p.byPrefix[prefix] = append(p.byPrefix[prefix], pattern{p.count, parts, n})
	p.count++
}

func (p *patterns) find(value string) *node {
	best, order := (*node)(nil), p.count
	for _, l := range p.lengths {
		if l > len(value) {
			continue
		}
		for _, c := range p.byPrefix[value[:l]] {
			if c.order >= order {
				break // the following ones come later in the file
			}
			if matchesPattern(c.parts, value) {
				best, order = c.node, c.order
				break
			}
		}
	}
	return best
}

// matchesPattern reports whether value consists of parts in their order with any text in between.
// Each part is matched at its first occurrence, which leaves the longest rest for the following
// parts.
func matchesPattern(parts []string, value string) bool {
	first, last := parts[0], parts[len(parts)-1]
	if len(parts) == 1 {
		return value == first
	}
	if len(value) < len(first)+len(last) || !strings.HasPrefix(value, first) || !strings.HasSuffix(value, last) {
		return false
	}
	value = value[len(first) : len(value)-len(last)]
	for _, part := range parts[1 : len(parts)-1] {
		i := strings.Index(value, part)
		if i < 0 {
			return false
		}
		value = value[i+len(part):]
	}
	return true
}
