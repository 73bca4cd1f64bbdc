package rules

import "go.yaml.in/yaml/v3"

// maxAliased is how many nodes all aliases of one file may stand for together.
const maxAliased = 100_000

// An aliasCheck finds aliases that contain themselves, or that stand for so much that
// reading what they stand for would take minutes and gigabytes. It looks at each node
// once.
type aliasCheck struct {
	sizes map[*yaml.Node]int // nodes that an anchor stands for, aliases written out; or open
	nodes int                // nodes of the file
	cycle *yaml.Node         // an alias that contains itself; nil: none
}

// inProgress is the size of an anchor that is being looked at.
const inProgress = -1

// checkAliases reports whether the file can be read with its aliases, and notes why if
// it cannot.
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

// size returns the number of nodes at and below n, aliases written out, or a large number
// if that is larger.
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

// aliased returns the size of what the alias n stands for, which stands before it in the
// file.
func (c *aliasCheck) aliased(n *yaml.Node) int {
	size := c.sizes[n.Alias]
	if size == inProgress {
		c.cycle = n
		return 0
	}
	return size
}
