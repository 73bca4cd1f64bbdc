package rules

import (
	"io"
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/heed-go/heed/internal/httphost"
)

// readAll reads at most max+1 bytes.
func readAll(from io.Reader, max int64) ([]byte, error) {
	return io.ReadAll(io.LimitReader(from, max+1)) // parse rejects a file with the extra byte
}

// values reads the section values, which declares the sources of the values of keys.
func (p *parser) values(n *yaml.Node) {
	at := p.resolveAlias(n)
	if at.Kind != yaml.MappingNode {
		p.fail(at, "values is %s: write a name and where its value comes from, as in \"user: {header: X-User}\"", kindOf(at))
		return
	}
	for i := 0; i+1 < len(at.Content) && !p.done(); i += 2 {
		name := p.resolveAlias(at.Content[i])
		switch {
		case name.Kind != yaml.ScalarNode || name.Value == "" || !printable(name.Value):
			p.fail(name, "values has %s for a name: write a plain name", kindOf(name))
		case p.byName[name.Value] != nil:
			p.fail(name, "values says %q twice: leave one", truncate(name.Value))
		default:
			p.declare(name.Value, at.Content[i+1])
		}
	}
}

// declare reads the source of one value.
func (p *parser) declare(name string, n *yaml.Node) {
	var from func(*http.Request) (string, bool)
	var origin string
	text := func(word string, of func(string) func(*http.Request) (string, bool)) func(*yaml.Node) {
		return func(n *yaml.Node) {
			arg, ok := p.scalar(n, word)
			switch {
			case ok && (arg == "" || !printable(arg) || word != "query" && word != "fixed" && word != "request" && !isToken(arg)):
				p.fail(n, "%s is %q: write a name", word, truncate(arg))
			case ok && word == "header" && http.CanonicalHeaderKey(arg) == "Host":
				p.fail(n, "header Host is not among the headers of a request: write request: host")
			case from != nil:
				p.fail(n, "values of %q come from two places: leave one", truncate(name))
			case ok:
				from, origin = of(arg), word+" "+arg
			}
		}
	}
	faults := len(p.faults)
	p.mapping(n, "a value", fieldReaders{
		"header": text("header", header),
		"cookie": text("cookie", cookie),
		"query":  text("query", query),
		"fixed":  text("fixed", fixed),
		"request": text("request", func(word string) func(*http.Request) (string, bool) {
			if wellKnown[word] == nil {
				p.fail(n, "request is %q: write %s", truncate(word), oneOfKeys(wellKnown))
			}
			return wellKnown[word]
		}),
	})
	if from == nil && len(p.faults) > faults {
		return
	}
	if from == nil {
		p.fail(n, "%q comes from nowhere: write header, cookie, query, fixed or request, and a name", truncate(name))
		return
	}
	s := p.addSource(name, origin, from)
	s.position = position{n.Line, n.Column}
	if header, ok := strings.CutPrefix(origin, "header "); ok {
		s.secret = httphost.IsSecret(http.CanonicalHeaderKey(header))
	}
}

// addSource appends a source with a name.
func (p *parser) addSource(name, origin string, of func(*http.Request) (string, bool)) *valueSource {
	s := &valueSource{index: len(p.sources), name: name, origin: origin, value: of}
	s.method = strings.TrimPrefix(s.wellKnown(), ":") == "method"
	p.sources = append(p.sources, s)
	p.byName[name] = s
	return s
}

// sourceOf returns the source of a key. It is nil if requests have no such value.
func (p *parser) sourceOf(key string) *valueSource {
	s := p.byName[key]
	if of := p.config.Values[key]; of != nil && (s == nil || s.origin != fromProgram) {
		s = p.addSource(key, fromProgram, of)
	} else if of := wellKnown[key]; s == nil && of != nil {
		s = p.addSource(key, "", of)
	}
	if s != nil {
		s.used = true
	}
	return s
}

// limit reads an item of limits.
func (p *parser) limit(n *yaml.Node) {
	var name, unidentified string
	var shadow bool
	var m match
	var key *yaml.Node
	var d *rateLimit
	p.mapping(n, "a limit", fieldReaders{
		"name":         p.str("name", &name),
		"match":        p.match(&m),
		"key":          func(n *yaml.Node) { key = n },
		"unidentified": p.str("unidentified", &unidentified),
		"shadow_mode":  p.boolean("shadow_mode", &shadow),
		"rate_limit":   func(n *yaml.Node) { d = p.rateLimit(n) },
	})
	switch n = p.resolveAlias(n); {
	case name == "":
		p.fail(n, "a limit has no name: write name: and one that no other limit has")
	case p.names[name]:
		p.fail(n, "the limit %q is there twice: rename one", truncate(name))
	case d == nil:
		p.fail(n, "the limit %q has no rate_limit: write one", truncate(name))
	case d.name != "" && d.name != name:
		p.fail(d.nodeOf("name"), "the limit %q has another name in its rate_limit: leave that out", truncate(name))
	case unidentified != "" && unidentified != "share" && unidentified != "skip":
		p.fail(n, "unidentified is %q: write share, for one limit for all of them, or skip, for none", truncate(unidentified))
	default:
		p.names[name], d.name = true, name
		p.route(d, m, p.parts(key, m), unidentified == "skip", key, shadow)
	}
}

// route adds the limit of d for requests that match m.
func (p *parser) route(d *rateLimit, m match, parts []part, skips bool, key *yaml.Node, shadow bool) {
	l := p.newLimit(d, p.domain+":"+quoteIfNeeded(d.name))
	if l == nil || key != nil && len(parts) == 0 {
		return
	}
	l.Shadow, l.match = shadow, m.String()
	if l.Keyed = len(parts) > 0; l.Keyed {
		l.keys, l.skipUnidentified = p.keyNames(key), skips
	}
	if r := p.add(l, d.node); r != nil {
		r.parts, r.match = parts, &m
		p.router.add(m, &route{rule: r})
	}
}

// keyNames returns the names at the word key.
func (p *parser) keyNames(key *yaml.Node) (names []string) {
	p.listOrOne(key, func(n *yaml.Node) {
		if name, ok := p.scalar(n, "key"); ok {
			names = append(names, name)
		}
	})
	return names
}

// parts reads the parts of the key of a limit: names of values, and names in braces of segments of
// its path.
func (p *parser) parts(key *yaml.Node, m match) (parts []part) {
	if key == nil {
		return nil
	}
	p.listOrOne(key, func(n *yaml.Node) {
		name, ok := p.scalar(n, "key")
		if !ok {
			return
		}
		if strings.HasPrefix(name, "{") {
			parts = append(parts, p.segment(n, name, m))
			return
		}
		s := p.sourceOf(name)
		if s == nil {
			p.fail(n, "key %q: requests have no such value: say under values where it comes from, or set Config.Values", truncate(name))
			return
		}
		parts = append(parts, part{source: s})
	})
	if len(parts) > maxDepth {
		p.fail(key, "key has more than %d values: join some of them", maxDepth)
	}
	return parts
}

// segment returns the part of a key for a name in braces.
func (p *parser) segment(n *yaml.Node, name string, m match) part {
	names := strings.Split(strings.TrimPrefix(m.path, "/"), "/")
	tail := strings.TrimSuffix(name, "}") + "...}"
	if i := slices.Index(names, tail); i >= 0 {
		return part{segment: i, tail: true}
	}
	i := slices.Index(names, name)
	if i < 0 || name == "{$}" {
		p.fail(n, "key %q: the path of this limit has no such name", truncate(name))
	}
	return part{segment: max(i, 0)}
}
