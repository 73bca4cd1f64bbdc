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
	literal map[string]*segment
	one     *segment // any one segment comes next
	end     *leaf    // the path ends here
	rest    *leaf    // anything may follow, or nothing
}

// A leaf has the patterns that end at one place, by method.
type leaf struct {
	methods map[string]*bucket
	any     *bucket
}

// A bucket has patterns that differ in their headers only.
type bucket struct {
	plain   []*route
	headers []*headers
}

// headers has patterns by the value of one header that they all ask for.
type headers struct {
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

func (c condition) holds(h http.Header) bool {
	return slices.ContainsFunc(h[c.name], func(v string) bool { return fits(c.parts, v) })
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
		s = s.below(name)
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

// below returns the segment after s by a name of a pattern.
func (s *segment) below(name string) *segment {
	if strings.HasPrefix(name, "{") {
		if s.one == nil {
			s.one = &segment{}
		}
		return s.one
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
			l.any = &bucket{}
		}
		l.any.add(to)
	}
	for _, m := range methods {
		if l.methods == nil {
			l.methods = map[string]*bucket{}
		}
		if l.methods[m] == nil {
			l.methods[m] = &bucket{}
		}
		l.methods[m].add(to)
	}
}

func (b *bucket) add(to *route) {
	if len(to.conditions) == 0 {
		b.plain = append(b.plain, to)
		return
	}
	c := to.conditions[0]
	i := slices.IndexFunc(b.headers, func(h *headers) bool { return h.name == c.name })
	if i < 0 {
		i = len(b.headers)
		b.headers = append(b.headers, &headers{name: c.name, exact: map[string][]*route{}})
	}
	if h := b.headers[i]; c.exact() {
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
	s.walk(r.any)
	s.walk(r.hosts[host])
	if r.suffixes == nil {
		return
	}
	for i := range len(host) {
		if host[i] == '.' {
			s.walk(r.suffixes[host[i:]])
		}
	}
}

// walk goes along the path of the request from a host's segment. A path that is
// written with escapes is walked both as it is written and as it reads, since
// servers differ in what they take it for.
func (s *search) walk(from *segment) {
	u := s.req.URL
	if from == nil || u == nil {
		return
	}
	p := clean(u.Path)
	s.step(from, p, false)
	if u.RawPath != "" {
		s.step(from, clean(u.RawPath), true)
	}
}

// clean returns p without what may be in it and means nothing. The slash at the
// beginning is cut off, and so is one at the end.
func clean(p string) string {
	if strings.Contains(p, "//") || strings.Contains(p, "/.") {
		p = path.Clean(p)
	}
	return strings.TrimSuffix(strings.TrimPrefix(p, "/"), "/")
}

// step tells what matches at from, with the path that is left.
func (s *search) step(from *segment, left string, escaped bool) {
	s.tell(from.rest)
	if left == "" {
		s.tell(from.end)
		return
	}
	name, rest, _ := strings.Cut(left, "/")
	if escaped {
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
	}
	if next := from.literal[name]; next != nil {
		s.step(next, rest, escaped)
	}
	if from.one != nil {
		s.step(from.one, rest, escaped)
	}
}

// tell tells the routes of a leaf that match the method and the headers.
func (s *search) tell(l *leaf) {
	if l == nil {
		return
	}
	s.open(l.any)
	m, _ := method(s.req)
	s.open(l.methods[m])
	if m == http.MethodHead {
		s.open(l.methods[http.MethodGet])
	}
}

func (s *search) open(b *bucket) {
	if b == nil {
		return
	}
	for _, r := range b.plain {
		s.matched(r)
	}
	for _, h := range b.headers {
		for _, v := range s.req.Header[h.name] {
			s.try(h.exact[v])
		}
		s.try(h.other)
	}
}

func (s *search) try(routes []*route) {
	for _, r := range routes {
		if !slices.ContainsFunc(r.conditions, func(c condition) bool { return !c.holds(s.req.Header) }) {
			s.matched(r)
		}
	}
}
