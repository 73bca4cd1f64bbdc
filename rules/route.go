package rules

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
)

// A router finds the limits that match a request: by host, then along the path, then
// by method and headers. What does not lie on the way is never looked at.
//
//	api.example.com ── search ── {} ── GET     one segment of the path each
//	*.example.com   ── ...                     {} is any segment
//	any host
type router struct {
	hosts    map[string]*segment // exact
	suffixes map[string]*segment // ".example.com"
	any      *segment
}

// A segment is a place in the paths of all patterns for one host.
type segment struct {
	literal  map[string]*segment
	wildcard *segment // any one segment comes next
	end      *leaf    // the path ends here
	rest     *leaf    // anything may follow, or nothing
}

// A leaf has the patterns that end at one place, by method.
type leaf struct {
	methods map[string]*methodRoutes
	any     *methodRoutes
}

// A methodRoutes has patterns that differ in their headers only.
type methodRoutes struct {
	unconditional []*route
	byHeader      []*headerRoutes
}

// headerRoutes has patterns by the value of one header that they all ask for.
type headerRoutes struct {
	name  string
	exact map[string][]*route
	other []*route // with "*" in the value
}

// A route is a limit and what a request must be like for it.
type route struct {
	rule       *rule
	conditions []condition
}

// A condition asks for a header.
type condition struct {
	name  string // canonical
	parts []string
	value string // as written; with "*" for anything
}

func (c condition) exact() bool { return len(c.parts) == 1 }

func (c condition) matches(h http.Header) bool {
	return slices.ContainsFunc(h[c.name], func(v string) bool { return matchesPattern(c.parts, v) })
}

// A match is what a file says at the word match.
type match struct {
	hosts, methods []string
	path           string
	conditions     []condition
}

// add puts a route into all places where m says.
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

// host returns the segment at which the paths of a host begin.
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

// add puts a route where the path of m leads from s.
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

// child returns the segment after s by a name of a pattern.
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

// splitPattern returns the segments of a pattern, and whether anything may follow.
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

// find tells s all routes that match its request.
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

// walkPath goes along the path of the request from a host's segment. A path that is
// written with escapes is walked both as it is written and as it reads, since
// servers differ in what they take it for.
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

// cleanPath returns p without what may be in it and means nothing. The slash at the
// beginning is cut off, and so is one at the end.
func cleanPath(p string) string {
	if strings.Contains(p, "//") || strings.Contains(p, "/.") {
		p = path.Clean(p)
	}
	return strings.TrimSuffix(strings.TrimPrefix(p, "/"), "/")
}

// walkSegments tells what matches at from, with the path that is left.
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

// matchLeaf tells the routes of a leaf that match the method and the headers.
func (s *search) matchLeaf(l *leaf) {
	if l == nil {
		return
	}
	s.matchRoutes(l.any)
	m, _ := method(s.req)
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
