package rules

import (
	"net/http"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// match returns a reader that stores the conditions on a request in m: a pattern of net/http such
// as "GET api.example.com/files/{id}", or a mapping with host, method, path and header.
func (p *parser) match(m *match) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if at := p.resolveAlias(n); at.Kind == yaml.ScalarNode {
			p.pattern(at, m)
			return
		}
		p.mapping(n, "match", fieldReaders{
			"host":   p.eachText("host", func(n *yaml.Node, text string) { p.host(n, text, m) }),
			"method": p.eachText("method", func(n *yaml.Node, text string) { p.method(n, text, m) }),
			"path":   func(n *yaml.Node) { p.path(n, m) },
			"header": func(n *yaml.Node) { p.headers(n, m) },
		})
	}
}

// isToken reports whether s is a token, as methods and names of headers are (RFC 9110, section
// 5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune("\"(),/:;<=>?@[\\]{}", c)
	})
}

// eachText returns a reader that calls read for one text or for each text of a list.
func (p *parser) eachText(what string, read func(*yaml.Node, string)) func(*yaml.Node) {
	return func(n *yaml.Node) {
		p.listOrOne(n, func(n *yaml.Node) {
			if text, ok := p.scalar(n, what); ok {
				read(n, text)
			}
		})
	}
}

// pattern reads "[METHOD ][HOST]/[PATH]".
func (p *parser) pattern(n *yaml.Node, m *match) {
	rest := n.Value
	if word, after, found := strings.Cut(rest, " "); found {
		p.method(n, word, m)
		rest = strings.TrimLeft(after, " ")
	}
	slash := strings.IndexByte(rest, '/')
	if slash < 0 {
		p.fail(n, "match is %q: write a pattern such as \"GET api.example.com/files/{id}\"", truncate(n.Value))
		return
	}
	if slash > 0 {
		p.host(n, rest[:slash], m)
	}
	p.setPath(n, rest[slash:], m)
}

func (p *parser) method(n *yaml.Node, text string, m *match) {
	if !isToken(text) || strings.ToUpper(text) != text {
		p.fail(n, "method is %q: write one such as GET, in capitals", truncate(text))
		return
	}
	m.methods = append(m.methods, text)
}

func (p *parser) host(n *yaml.Node, text string, m *match) {
	host := strings.TrimSuffix(strings.ToLower(text), ".")
	name := strings.TrimPrefix(host, "*.")
	if name == "" || !printable(name) || strings.ContainsAny(name, "*/ ,") || strings.Contains(name, ":") && !strings.HasSuffix(name, "]") {
		p.fail(n, "host is %q: write a name without port such as api.example.com, or *.example.com for all below it", truncate(text))
		return
	}
	m.hosts = append(m.hosts, host)
}

func (p *parser) path(n *yaml.Node, m *match) {
	if text, ok := p.scalar(n, "path"); ok {
		p.setPath(n, text, m)
	}
}

// setPath checks a path and stores it in m.
func (p *parser) setPath(n *yaml.Node, text string, m *match) {
	names := strings.Split(strings.TrimPrefix(text, "/"), "/")
	if !strings.HasPrefix(text, "/") || !printable(text) || len(names) > 64 {
		p.fail(n, "path is %q: write one that begins with / and has no more than 64 segments of plain text", truncate(text))
		return
	}
	for i, name := range names {
		last := i == len(names)-1
		if what := wrongSegment(name, last, names[:i]); what != "" {
			p.fail(n, "path %q: %q %s", truncate(text), truncate(name), what)
			return
		}
	}
	m.path = text
}

// wrongSegment describes the error in a segment of a pattern. It returns "" if there is none.
func wrongSegment(name string, last bool, before []string) string {
	switch {
	case name == "" && !last:
		return "is empty: write one slash only"
	case name == "." || name == "..":
		return "is no segment that a request can have: leave it out"
	case !strings.ContainsAny(name, "{}*"):
		return ""
	case strings.Contains(name, "*"):
		return "has a star: write {name} for one segment, or {name...} for all that follow"
	case !strings.HasPrefix(name, "{") || !strings.HasSuffix(name, "}") || strings.ContainsAny(name[1:len(name)-1], "{}") || name == "{}":
		return "is no name in braces: write {name} for a whole segment"
	case (name == "{$}" || strings.HasSuffix(name, "...}")) && !last:
		return "can only be the last"
	case slices.Contains(before, name) || slices.Contains(before, strings.Replace(name, "...}", "}", 1)):
		return "is there twice: give it another name"
	}
	return ""
}

// headers reads the values that headers must have. In a value "*" matches any text.
func (p *parser) headers(n *yaml.Node, m *match) {
	at := p.resolveAlias(n)
	if at.Kind != yaml.MappingNode {
		p.fail(at, "header is %s: write names and values, as in \"X-Plan: free\"", kindOf(at))
		return
	}
	for i := 0; i+1 < len(at.Content); i += 2 {
		name := p.resolveAlias(at.Content[i])
		value, ok := p.scalar(at.Content[i+1], "header")
		canonical := http.CanonicalHeaderKey(name.Value)
		switch {
		case !ok:
		case name.Kind != yaml.ScalarNode || !isToken(name.Value) || value == "":
			p.fail(name, "header needs the name of one and a value: write \"*\" for any value")
		case canonical == "Host":
			p.fail(name, "header Host: write host instead")
		case slices.ContainsFunc(m.conditions, func(c condition) bool { return c.name == canonical }):
			p.fail(name, "header %s is there twice: leave one", truncate(canonical))
		default:
			m.conditions = append(m.conditions, condition{canonical, strings.Split(value, "*"), value})
		}
	}
	slices.SortFunc(m.conditions, func(a, b condition) int { return strings.Compare(a.name, b.name) })
}

// String returns m in one line, such as "GET,POST api.example.com/files/{id} X-Plan=free".
func (m *match) String() string {
	path := m.path
	if path == "" {
		path = "/"
	}
	s := strings.Join(m.hosts, ",") + path
	if len(m.methods) > 0 {
		s = strings.Join(m.methods, ",") + " " + s
	}
	for _, c := range m.conditions {
		s += " " + c.name + "=" + quoteIfNeeded(c.value)
	}
	return s
}
