package rules

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// A router finds the limits that match a request: by host, then by the segments of the path, then
// by method and headers. Only entries along that way are examined.
//
//	api.example.com ── search ── {} ── GET     one segment of the path each
//	*.example.com   ── ...                     {} is any segment
//	any host
type router struct {
	hosts    map[string]*segment // by exact host
	suffixes map[string]*segment // by suffix of the host, such as ".example.com"
	any      *segment
}

// A segment is a node in the tree of the paths of all patterns for one host.
type segment struct {
	literal  map[string]*segment
	wildcard *segment // the next node for any segment
	end      *leaf    // patterns whose path ends here
	rest     *leaf    // patterns that match any rest of the path, including an empty one
}

// A leaf holds the patterns that end at one segment, by method.
type leaf struct {
	methods map[string]*methodRoutes
	any     *methodRoutes
}

// A methodRoutes holds patterns that differ in their headers only.
type methodRoutes struct {
	unconditional []*route
	byHeader      []*headerRoutes
}

// headerRoutes holds patterns that require the same header, by its value.
type headerRoutes struct {
	name  string
	exact map[string][]*route
	other []*route // with "*" in the value
}

// A route is a limit and the headers that it requires of a request.
type route struct {
	rule       *rule
	conditions []condition
}

// A condition requires a header.
type condition struct {
	name  string // in canonical form
	parts []string
	value string // as in the file; "*" matches any text
}

func (c condition) exact() bool { return len(c.parts) == 1 }

func (c condition) matches(h http.Header) bool {
	return slices.ContainsFunc(h[c.name], func(v string) bool { return matchesPattern(c.parts, v) })
}

// A match holds the words of a match mapping.
type match struct {
	hosts, methods []string
	path           string
	conditions     []condition
}

// add adds route to at all places that m describes.
func (r *router) add(m match, to *route) {
	to.conditions = m.conditions
	for _, host := range m.hosts {
		r.host(host).add(m, to)
	}
	if len(m.hosts) == 0 {
		if r.any == nil {
			r.any = &segment{}
		}
		r.any.add(m, to)
	}
}

// host returns the root segment of a host. It creates one if necessary.
func (r *router) host(host string) *segment {
	table, key := &r.hosts, host
	if suffix, ok := strings.CutPrefix(host, "*"); ok {
		table, key = &r.suffixes, suffix
	}
	if *table == nil {
		*table = map[string]*segment{}
	}
	if (*table)[key] == nil {
		(*table)[key] = &segment{}
	}
	return (*table)[key]
}

// add adds a route at the end of the path of m, starting at s.
func (s *segment) add(m match, to *route) {
	names, subtree := splitPattern(m.path)
	for _, name := range names {
		s = s.child(name)
	}
	at := &s.end
	if subtree {
		at = &s.rest
	}
	if *at == nil {
		*at = &leaf{}
	}
	(*at).add(m.methods, to)
}

// child returns the segment after s for a segment of a pattern. It creates one if necessary.
func (s *segment) child(name string) *segment {
	if strings.HasPrefix(name, "{") {
		if s.wildcard == nil {
			s.wildcard = &segment{}
		}
		return s.wildcard
	}
	if s.literal == nil {
		s.literal = map[string]*segment{}
	}
	if s.literal[name] == nil {
		s.literal[name] = &segment{}
	}
	return s.literal[name]
}

// splitPattern returns the segments of a pattern. subtree is true if the pattern matches any rest
// of the path.
func splitPattern(pattern string) (names []string, subtree bool) {
	if pattern == "" {
		return nil, true
	}
	names = strings.Split(strings.TrimPrefix(pattern, "/"), "/")
	switch last := names[len(names)-1]; {
	case last == "{$}":
		return names[:len(names)-1], false
	case last == "", strings.HasSuffix(last, "...}"):
		return names[:len(names)-1], true
	}
	return names, false
}

func (l *leaf) add(methods []string, to *route) {
	if len(methods) == 0 {
		if l.any == nil {
			l.any = &methodRoutes{}
		}
		l.any.add(to)
	}
	for _, m := range methods {
		if l.methods == nil {
			l.methods = map[string]*methodRoutes{}
		}
		if l.methods[m] == nil {
			l.methods[m] = &methodRoutes{}
		}
		l.methods[m].add(to)
	}
}

func (b *methodRoutes) add(to *route) {
	if len(to.conditions) == 0 {
		b.unconditional = append(b.unconditional, to)
		return
	}
	c := to.conditions[0]
	i := slices.IndexFunc(b.byHeader, func(h *headerRoutes) bool { return h.name == c.name })
	if i < 0 {
		i = len(b.byHeader)
		b.byHeader = append(b.byHeader, &headerRoutes{name: c.name, exact: map[string][]*route{}})
	}
	if h := b.byHeader[i]; c.exact() {
		h.exact[c.value] = append(h.exact[c.value], to)
	} else {
		h.other = append(h.other, to)
	}
}

// find adds all routes that match the request of s to s.
func (r *router) find(s *search) {
	if r.any == nil && r.hosts == nil && r.suffixes == nil {
		return
	}
	host := hostOf(s.req)
	s.walkPath(r.any)
	s.walkPath(r.hosts[host])
	if r.suffixes == nil {
		return
	}
	for i := range len(host) {
		if host[i] == '.' {
			s.walkPath(r.suffixes[host[i:]])
		}
	}
}

// walkPath follows the path of the request, starting at the root segment of a host. A path with
// escapes is followed both as written and unescaped, because servers differ in which of the two
// they use.
func (s *search) walkPath(from *segment) {
	u := s.req.URL
	if from == nil || u == nil {
		return
	}
	p := cleanPath(u.Path)
	s.walkSegments(from, p, false)
	if u.RawPath != "" {
		s.walkSegments(from, cleanPath(u.RawPath), true)
	}
}

// cleanPath returns p without empty, "." and ".." segments, and without its first and its last
// slash.
func cleanPath(p string) string {
	if strings.Contains(p, "//") || strings.Contains(p, "/.") {
		p = path.Clean(p)
	}
	return strings.TrimSuffix(strings.TrimPrefix(p, "/"), "/")
}

// walkSegments adds the routes that match at from, where left is the rest of the path.
func (s *search) walkSegments(from *segment, left string, escaped bool) {
	s.matchLeaf(from.rest)
	if left == "" {
		s.matchLeaf(from.end)
		return
	}
	name, rest, _ := strings.Cut(left, "/")
	if escaped {
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
	}
	if next := from.literal[name]; next != nil {
		s.walkSegments(next, rest, escaped)
	}
	if from.wildcard != nil {
		s.walkSegments(from.wildcard, rest, escaped)
	}
}

// matchLeaf adds the routes of l that match the method, also in lower case, and the headers.
func (s *search) matchLeaf(l *leaf) {
	if l == nil {
		return
	}
	s.matchRoutes(l.any)
	m, _ := method(s.req)
	if l.methods[m] == nil {
		m = strings.ToUpper(m) // a handler that ignores the case serves "post", too
	}
	s.matchRoutes(l.methods[m])
	if m == http.MethodHead {
		s.matchRoutes(l.methods[http.MethodGet])
	}
}

func (s *search) matchRoutes(b *methodRoutes) {
	if b == nil {
		return
	}
	for _, r := range b.unconditional {
		s.addRoute(r)
	}
	for _, h := range b.byHeader {
		for _, v := range s.req.Header[h.name] {
			s.matchHeaders(h.exact[v])
		}
		s.matchHeaders(h.other)
	}
}

func (s *search) matchHeaders(routes []*route) {
	for _, r := range routes {
		if !slices.ContainsFunc(r.conditions, func(c condition) bool { return !c.matches(s.req.Header) }) {
			s.addRoute(r)
		}
	}
}
