package rules

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A parsedFile is a file that has been read and is not in force yet.
type parsedFile struct {
	domain  string
	rules   []*rule
	root    *node
	router  router
	sources []*valueSource
	byName  map[string]*valueSource // the source of each name that is in force
}

// Parse returns the limits of a file, in force. It reports all errors of the file: the returned
// error is an *Error, or wraps one *Error for each.
func Parse(text []byte, s Config) (*Set, error) {
	p, err := parse(text, &s)
	if err != nil {
		return nil, err
	}
	return p.activate(s, nil)
}

// Load calls Parse for the file at path.
func Load(path string, s Config) (*Set, error) {
	text, err := readFile(path, &s)
	if err != nil {
		return nil, err
	}
	set, err := Parse(text, s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return set, nil
}

// readFile returns the content of a file, up to one byte more than Config.MaxBytes.
func readFile(path string, s *Config) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	defer f.Close()
	text, err := readAll(f, s.maxBytes())
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	return text, nil
}

// A parser reads the nodes of one file into a parsedFile.
type parser struct {
	reader
	parsedFile
	names map[string]bool // of limits with a match
}

func parse(text []byte, s *Config) (*parsedFile, error) {
	p := &parser{reader: reader{config: s}, parsedFile: parsedFile{root: &node{}, byName: map[string]*valueSource{}}, names: map[string]bool{}}
	if int64(len(text)) > s.maxBytes() {
		return nil, &Error{Message: fmt.Sprintf("the file has more than %d bytes: split it, or raise Config.MaxBytes", s.maxBytes())}
	}
	if doc := p.document(text); doc != nil {
		p.file(doc)
	} else if len(p.faults) == 0 {
		p.faults = append(p.faults, &Error{1, 1, "the file is empty: write domain: and a name, and descriptors: or limits:"})
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	for _, r := range p.rules {
		r.limit.address = p.addressPart(r.limit)
	}
	return &p.parsedFile, nil
}

// file reads a whole file. Sections that define names are read before those that use them, in
// whatever order they appear.
func (p *parser) file(doc *yaml.Node) {
	var values, descriptors, limits *yaml.Node
	keep := func(to **yaml.Node) func(*yaml.Node) { return func(n *yaml.Node) { *to = n } }
	p.mapping(doc, "the file", fieldReaders{
		"domain":      p.str("domain", &p.domain),
		"values":      keep(&values),
		"descriptors": keep(&descriptors),
		"limits":      keep(&limits),
	})
	if p.domain == "" && len(p.faults) == 0 {
		p.fail(doc, "domain is missing: write domain: and a name for these limits")
	}
	if !printable(p.domain) {
		p.fail(doc, "domain is %q: write a plain name", truncate(p.domain))
	}
	if values != nil {
		p.values(values)
	}
	if descriptors != nil {
		p.descriptors(descriptors, p.root, treePath{id: p.domain})
	}
	if limits != nil {
		p.list(limits, "limits", p.limit)
	}
}

// add appends a rule for l. It returns nil if l is nil or if there are too many limits.
func (p *parser) add(l *Limit, n *yaml.Node) *rule {
	if len(p.rules) == p.config.maxLimits() {
		p.fail(n, "more than %d limits: split the file, or raise Config.MaxLimits", p.config.maxLimits())
		p.stopped = true
		return nil
	}
	if l == nil || len(p.rules) > p.config.maxLimits() {
		return nil
	}
	if l.Compact && !l.Keyed {
		p.fail(n, "compact is for limits of many keys: this has one, so leave it out")
	}
	r := &rule{index: len(p.rules), limit: l}
	p.rules = append(p.rules, r)
	return r
}

// A treePath identifies a node of the tree of descriptors.
type treePath struct {
	id     string
	levels []level
}

// A descriptor is an item of descriptors, before it is inserted into the tree.
type descriptor struct {
	node                               *yaml.Node
	key, value                         string
	shadow, detailed, toMetric, shared bool
	limit                              *rateLimit
	children                           *yaml.Node
	nodes                              map[string]*yaml.Node
}

// descriptors reads a list of descriptors into the tree below a node.
func (p *parser) descriptors(n *yaml.Node, into *node, w treePath) {
	if len(w.levels) == maxDepth {
		p.fail(n, "descriptors are more than %d deep: join some of their keys", maxDepth)
		return
	}
	p.list(n, "descriptors", func(n *yaml.Node) {
		d := p.descriptor(n)
		if d.key == "" {
			p.fail(n, "a descriptor has no key: write key: and a name")
			return
		}
		p.insert(d, into, w)
	})
}

func (p *parser) descriptor(n *yaml.Node) *descriptor {
	d := &descriptor{node: p.resolveAlias(n), nodes: map[string]*yaml.Node{}}
	p.mapping(n, "a descriptor", recordNodes(fieldReaders{
		"key":             p.str("key", &d.key),
		"value":           p.str("value", &d.value),
		"rate_limit":      func(n *yaml.Node) { d.limit = p.rateLimit(n) },
		"shadow_mode":     p.boolean("shadow_mode", &d.shadow),
		"detailed_metric": p.boolean("detailed_metric", &d.detailed),
		"value_to_metric": p.boolean("value_to_metric", &d.toMetric),
		"share_threshold": p.boolean("share_threshold", &d.shared),
		"descriptors":     func(n *yaml.Node) { d.children = n },
	}, d.nodes))
	return d
}

// insert adds d to the tree below a node, with its limit and its nested descriptors.
func (p *parser) insert(d *descriptor, into *node, w treePath) {
	pattern := strings.Contains(d.value, "*")
	if d.shared && !pattern {
		p.fail(d.nodes["share_threshold"], "share_threshold is for values with \"*\": %q has none", truncate(d.value))
	}
	n := &node{keyed: d.value == "" || pattern && !d.shared}
	if !into.group(d.key, p.sourceOf(d.key)).add(d.value, n) {
		p.fail(d.node, "the descriptor %s is there twice: leave one", descriptorID(d.key, d.value))
		return
	}
	w = treePath{w.id + "/" + descriptorID(d.key, d.value), append(slices.Clip(w.levels), level{d.key, d.value, n.keyed, d.toMetric && !d.shared})}
	if d.limit != nil {
		n.rule = p.add(p.descriptorLimit(d, w), d.limit.node)
	} else if d.shadow {
		p.fail(d.nodes["shadow_mode"], "shadow_mode is for a descriptor with a rate_limit: put it next to one")
	}
	if d.children != nil {
		p.descriptors(d.children, n, w)
	}
}

// descriptorLimit returns the limit of d. It returns nil if the limit is invalid.
func (p *parser) descriptorLimit(d *descriptor, w treePath) *Limit {
	l := p.newLimit(d.limit, w.id)
	if l == nil {
		return nil
	}
	l.Shadow = d.shadow
	l.metric = metric{domain: p.domain, levels: slices.Clone(w.levels)}
	for i := range l.metric.levels {
		at := &l.metric.levels[i]
		if d.detailed {
			at.shown = at.keyed
		}
		if at.keyed {
			l.Keyed, l.keys = true, append(l.keys, at.key)
		}
	}
	return l
}

// descriptorID returns a descriptor as part of a Limit.ID. Different paths of descriptors have
// different IDs.
func descriptorID(key, value string) string {
	if value == "" {
		return quoteIfNeeded(key)
	}
	return quoteIfNeeded(key) + "=" + quoteIfNeeded(value)
}

func quoteIfNeeded(s string) string {
	if s == "" || strings.ContainsAny(s, "/=\"\\:;, ") || !printable(s) {
		return strconv.Quote(s)
	}
	return s
}

// printable reports whether s needs no escapes in double quotes.
func printable(s string) bool { return strconv.Quote(s) == `"`+s+`"` }
