package rules

import "strings"

// A node is one descriptor of a file, and what comes below it. The root has no
// descriptor.
//
//	root ── message_type ── marketing ── to_number ── any    5 a day for each number
//	     ╲─ to_number ── any                                 100 a day for each number
//
// Below a node there is a group for each key, and in it a node for each value: those
// that are written out are found at once, however many there are.
type node struct {
	rule   *rule // nil: no limit here
	keyed  bool  // the value that a request has here belongs to the key of all limits below
	groups []*group
	byKey  map[string]*group
}

// A group has all descriptors of one key below one node.
type group struct {
	key    string
	source *valueSource // what requests have under the key; nil: only programs say it
	exact  map[string]*node
	wild   patterns
	any    *node // without a value; nil: there is none
}

// group returns the group of a key below n, a new one if need be.
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

// add puts a node for a value into g, "" for any. It reports false if there is one.
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

// find returns the most specific node for a value: the one that has it, then the
// first of the file with a pattern that fits, then the one for any. It is nil if
// there is none.
func (g *group) find(value string) *node {
	if n := g.exact[value]; n != nil {
		return n
	}
	if n := g.wild.find(value); n != nil {
		return n
	}
	return g.any
}

// patterns are values with "*" in them, in the order of the file. They are found by
// what they begin with: of a thousand prefixes of five different lengths, five are
// looked up.
type patterns struct {
	lengths  []int // of the prefixes, each once
	byPrefix map[string][]pattern
	count    int
}

// A pattern is a value with "*" in it, each for any text, also for none.
type pattern struct {
	order int
	parts []string // between the stars; the first is the prefix
	node  *node
}

func (p *patterns) add(value string, n *node) {
	parts := strings.Split(value, "*")
	prefix := parts[0]
	if p.byPrefix == nil {
		p.byPrefix = map[string][]pattern{}
	}
	known := false
	for _, l := range p.lengths {
		known = known || l == len(prefix)
	}
	if !known {
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
				break // later ones come later in the file as well
			}
			if matchesPattern(c.parts, value) {
				best, order = c.node, c.order
				break
			}
		}
	}
	return best
}

// matchesPattern reports whether value is the parts in their order with anything in between.
// Each part is taken where it is found first, which leaves most for those after it.
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
