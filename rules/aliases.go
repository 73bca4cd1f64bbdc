package rules

import "go.yaml.in/yaml/v3"

// maxAliased is how many nodes all aliases of one file may stand for together.
const maxAliased = 100_000

// An aliasCheck finds aliases that contain themselves, or that stand for so much that
// reading what they stand for would take minutes and gigabytes. It looks at each node
// once.
type aliasCheck struct {
	sizes map[*yaml.Node]int // nodes that an anchor stands for, aliases written out; or open
	own   int                // nodes of the file
	loop  *yaml.Node         // an alias that contains itself; nil: none
}

// open is the size of an anchor that is being looked at.
const open = -1

// checkAliases reports whether the file can be read with its aliases, and notes why if
// it cannot.
func (r *reader) checkAliases(doc *yaml.Node) bool {
	c := aliasCheck{sizes: map[*yaml.Node]int{}}
	size := c.size(doc)
	switch {
	case c.loop != nil:
		r.fail(c.loop, "the alias *%s contains itself: write out what it should stand for", clip(c.loop.Value))
	case size > c.own+maxAliased:
		r.fail(doc, "aliases make this file too large: write out less with them")
	default:
		return true
	}
	return false
}

// size returns the number of nodes at and below n, aliases written out, or a large number
// if that is larger.
func (c *aliasCheck) size(n *yaml.Node) int {
	if c.loop != nil {
		return 0
	}
	if n.Kind == yaml.AliasNode {
		c.own++
		return c.aliased(n)
	}
	if n.Anchor != "" {
		c.sizes[n] = open
	}
	c.own++
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
	if size == open {
		c.loop = n
		return 0
	}
	return size
}
