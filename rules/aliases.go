package rules

import "go.yaml.in/yaml/v3"

// maxAliased is the maximum number of nodes that all aliases of one file may expand to.
const maxAliased = 100_000

// An aliasCheck finds aliases that contain themselves, and aliases whose expansion would take
// minutes and gigabytes to read. It visits each node once.
type aliasCheck struct {
	sizes map[*yaml.Node]int // expanded size of the node of each anchor, or inProgress
	nodes int                // nodes of the file
	cycle *yaml.Node         // an alias that contains itself; nil if there is none
}

// inProgress is the size of an anchor whose node is being visited.
const inProgress = -1

// checkAliases reports whether the file can be read with its aliases expanded. It records an error
// if not.
func (r *reader) checkAliases(doc *yaml.Node) bool {
	c := aliasCheck{sizes: map[*yaml.Node]int{}}
	size := c.size(doc)
	switch {
	case c.cycle != nil:
		r.fail(c.cycle, "the alias *%s contains itself: write out what it should stand for", truncate(c.cycle.Value))
	case size > c.nodes+maxAliased:
		r.fail(doc, "aliases make this file too large: write out less with them")
	default:
		return true
	}
	return false
}

// size returns the number of nodes at and below n with aliases expanded, or 1<<30 if there are
// more.
func (c *aliasCheck) size(n *yaml.Node) int {
	if c.cycle != nil {
		return 0
	}
	if n.Kind == yaml.AliasNode {
		c.nodes++
		return c.aliased(n)
	}
	if n.Anchor != "" {
		c.sizes[n] = inProgress
	}
	c.nodes++
	total := 1
	for _, below := range n.Content {
		total = min(total+c.size(below), 1<<30)
	}
	if n.Anchor != "" {
		c.sizes[n] = total
	}
	return total
}

// aliased returns the expanded size of the node that n is an alias of. YAML requires the anchor to
// precede the alias.
func (c *aliasCheck) aliased(n *yaml.Node) int {
	size := c.sizes[n.Alias]
	if size == inProgress {
		c.cycle = n
		return 0
	}
	return size
}
