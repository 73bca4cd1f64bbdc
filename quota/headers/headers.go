// Package headers parses and writes rate-limit headers. [Parse] returns what a response states
// about limits as a [Report]: RateLimit and RateLimit-Policy of the IETF drafts, the X-RateLimit
// family and its relatives, Retry-After, and the headers of the APIs in a built-in table, see
// [Provider]. [Reader.ReadBody] adds what the first bytes of a body state. [Write] sets the
// headers of a server. The package does not depend on the tracker in package quota.
//
//	report := headers.Parse(resp.StatusCode, resp.Header, time.Now())
//	for _, l := range report.Limits {
//		log.Printf("%s: %d of %d left, reset in %v", l.Name, l.Remaining, l.Limit, l.ResetAfter)
//	}
package headers

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/httphost"
)

// A Reader reads what responses state about limits. The zero Reader knows the dialects and
// a built-in table of APIs whose headers are incomplete. The fields must not be changed
// after the first use. A Reader is safe for concurrent use.
type Reader struct {
	// Hosts holds additional providers by host name. They take precedence over the built-in
	// table. Nil means none.
	Hosts map[string]Provider

	// NoProviderTable disables the built-in table. Hosts is still used.
	NoProviderTable bool

	// Body reads the first bytes of a body and adds to r what the headers do not state. Nil
	// means the reading that ReadBody describes. Body is called for errors below 500 except 401
	// and 404, for 503 and 529, and for the responses that Provider.ErrorCodes and
	// Provider.InspectSuccessBody add, but not for HTML, streams and other types of content
	// that are not read.
	Body func(status int, h http.Header, peek []byte, r *Report)
}

// Parse returns what a response states about limits, as the zero Reader does for an unknown
// host. received is the local time of receipt. For absolute times the response's Date takes
// precedence over received.
func Parse(status int, h http.Header, received time.Time) Report {
	var r Reader
	return r.Parse("", status, h, received)
}

// Parse returns what a response of host states about limits. If host is empty or unknown,
// Parse uses the general rules and the header names that have only one meaning.
//
// Delays are between 0 and 366 days for any input, and the work is bounded: of a response
// with more than 512 header names only the well-known ones are read, of more than 32 limits
// the first by name, and no value longer than 4 KiB.
func (r *Reader) Parse(host string, status int, h http.Header, received time.Time) Report {
	return r.parse(r.Provider(host), status, h, received)
}

// parse reads a response of the host that provider describes. A nil provider means an
// unknown host.
func (r *Reader) parse(provider *Provider, status int, h http.Header, received time.Time) Report {
	p := parserPool.Get().(*parser)
	p.h, p.status, p.received, p.provider, p.useTable = h, status, received, provider, !r.NoProviderTable
	p.collect()
	p.finish()
	p.out.resolve(status)
	p.out.provider = provider
	out := p.out
	p.reset()
	parserPool.Put(p)
	return out
}

// Provider returns the entry of Hosts or of the built-in table for host. It returns nil if
// the host is unknown.
func (r *Reader) Provider(host string) *Provider {
	if host == "" {
		return nil
	}
	host = httphost.Name(host)
	if len(r.Hosts) > 0 {
		if provider, ok := r.Hosts[host]; ok {
			return &provider
		}
	}
	if r.NoProviderTable {
		return nil
	}
	return builtinProvider(host)
}

const (
	maxHeaders   = 512  // of a response with more, only the well-known names are read
	maxGroups    = 32   // limits read
	maxValueLen  = 4096 // bytes of a value
	maxInstances = 16   // instances of one header
)

// A parser parses one response.
type parser struct {
	h         http.Header
	status    int
	received  time.Time
	serverNow time.Time // the server's clock; zero until it is needed
	age       time.Duration
	provider  *Provider
	useTable  bool
	overflow  bool     // there were more groups than are read
	scratch   nameInfo // of the name that was parsed last

	out          Report
	dates        []string // values of Date
	groups       []headerGroup
	retryHeaders []retryHeader
	custom       []customHeader
	builders     builders
}

// A retryHeader is one header of the Retry-After family.
type retryHeader struct {
	values       []string
	scale        time.Duration
	isRetryAfter bool // the header is Retry-After itself
}

// A customHeader is a header that a Rule reads with its own function.
type customHeader struct {
	header, value string
	read          func(string, *Report)
}

// parserPool holds parsers for reuse. They contain no data of responses.
var parserPool = sync.Pool{New: func() any { return new(parser) }}

// reset clears p and keeps its memory.
func (p *parser) reset() {
	p.resetGroups()
	clear(p.builders.limits)
	clear(p.builders.policies)
	p.builders.limits, p.builders.policies = p.builders.limits[:0], p.builders.policies[:0]
	p.h, p.provider, p.dates, p.out = nil, nil, nil, Report{}
	p.serverNow, p.age = time.Time{}, 0
}

// resetGroups discards the result of collect.
func (p *parser) resetGroups() {
	clear(p.groups)
	clear(p.retryHeaders)
	clear(p.custom)
	p.groups, p.retryHeaders, p.custom, p.overflow = p.groups[:0], p.retryHeaders[:0], p.custom[:0], false
}

// A headerGroup holds the headers of one bucket.
type headerGroup struct {
	nameInfo
	firstHeader string          // the first of the names, for a stable order
	windows     []time.Duration // of the numbers in a value, if a rule states them
	values      [KindRetryAfter]headerValue
}

// A headerValue is the value of one field of a bucket, and the name of its header.
type headerValue struct {
	header, value string
	scale         time.Duration // unit of time of a bare number; 0: not stated
}

// collect sorts the headers into groups. The result does not depend on the order of the
// map: if there are too many groups, they are collected again in the order of their names.
func (p *parser) collect() {
	if len(p.h) > maxHeaders {
		p.collectWellKnown()
		return
	}
	known := wellKnown()
	for name, values := range p.h {
		p.collectHeader(name, values, known)
	}
	if !p.overflow {
		return
	}
	p.resetGroups()
	p.collectWellKnown()
	for _, name := range slices.Sorted(maps.Keys(p.h)) {
		if !p.isWellKnown(name) {
			p.collectHeader(name, p.h[name], known)
		}
	}
}

// collectHeader adds one header to its group.
func (p *parser) collectHeader(name string, values []string, known map[string]*nameInfo) {
	if len(values) == 0 {
		return
	}
	m, rule, ok := p.classify(name, known)
	switch {
	case rule != nil && rule.Read != nil:
		p.custom = append(p.custom, customHeader{name, joinValues(values), rule.Read})
	case m.kind == KindRetryAfter:
		p.retryHeaders = append(p.retryHeaders, retryHeader{values, m.scale, name == "Retry-After"})
	case m.kind == kindDate:
		p.dates = values
	case m.kind == kindAge:
		p.age = parseAge(values[0])
	case ok || isUsageValue(m, values):
		p.store(name, joinValues(values), m, rule)
	}
}

// isUsageValue reports whether a header whose name is ambiguous has a value in a form that
// only limits have: api-usage=135/5000, or 2/40 alone.
func isUsageValue(m *nameInfo, values []string) bool {
	if m.kind != KindLimit || len(values) == 0 || len(values[0]) > maxValueLen {
		return false
	}
	v := trimBlanks(values[0])
	slash := strings.IndexByte(v, '/')
	return slash > 0 && (strings.Contains(v, "=") || countPrefix(v, isDigit) == slash && slash+1 < len(v) && countPrefix(v[slash+1:], isDigit) == len(v)-slash-1)
}

// classify looks up a header name in the rules of the host and in those for all hosts, and
// then parses it by the general rules.
func (p *parser) classify(name string, known map[string]*nameInfo) (m *nameInfo, rule *Rule, ok bool) {
	if p.provider != nil && p.provider.Headers != nil {
		if r, found := p.provider.Headers[name]; found {
			return r.applyTo(name), &r, r.Kind != KindNone
		}
	}
	if m, ok := known[name]; ok {
		return m, nil, m.isRateLimit || m.kind != KindNone && m.kind <= KindRetryAfter
	}
	if p.useTable {
		if r, found := uniqueRules()[name]; found {
			return r.applyTo(name), r, r.Kind != KindNone
		}
	}
	p.scratch, ok = parseName(name)
	return &p.scratch, nil, ok
}

// applyTo returns what the general rules state about name, corrected by rule.
func (rule *Rule) applyTo(name string) *nameInfo {
	m, _ := parseName(name)
	m.kind, m.scale, m.isRateLimit = rule.Kind, rule.Scale, true
	if rule.Unit != "" {
		m.unit = rule.Unit
	}
	if rule.Name != "" {
		m.singleQualifier, m.qualifierHash = rule.Name, hashWord(0, []byte(rule.Name))
	}
	return &m
}

// store adds a value to the field of its bucket. If two headers state the same field of the
// same bucket, the first name in alphabetical order is used.
func (p *parser) store(name, value string, m *nameInfo, rule *Rule) {
	if value == "" || len(value) > maxValueLen {
		return
	}
	g := p.findGroup(name, m)
	if g == nil {
		return
	}
	if rule != nil && rule.Windows != nil {
		g.windows = rule.Windows
	}
	if s := &g.values[m.kind]; s.header == "" || name < s.header {
		*s = headerValue{name, value, m.scale}
	}
}

func (p *parser) findGroup(name string, m *nameInfo) *headerGroup {
	for i := range p.groups {
		if g := &p.groups[i]; g.qualifierHash == m.qualifierHash && g.spelling == m.spelling {
			g.firstHeader = min(g.firstHeader, name)
			g.isRateLimit = g.isRateLimit || m.isRateLimit
			g.unit = max(g.unit, m.unit) // a user's rule may state it for one header only
			return g
		}
	}
	if len(p.groups) == maxGroups {
		p.overflow = true
		return nil
	}
	return p.newGroup(name, m)
}

// newGroup appends a group. It reuses the memory that resetGroups has cleared, because a
// group is large.
func (p *parser) newGroup(name string, m *nameInfo) *headerGroup {
	n := len(p.groups)
	if n == cap(p.groups) {
		p.groups = append(p.groups, headerGroup{})
	}
	p.groups = p.groups[:n+1]
	g := &p.groups[n]
	g.nameInfo, g.firstHeader = *m, name
	return g
}

// joinValues returns all values of a header as one list.
func joinValues(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return strings.Join(values[:min(len(values), maxInstances)], ", ")
}

// serverTime returns the time at the server at which the response was received: its Date
// plus the age added by caches. Without a Date it is the local time.
func (p *parser) serverTime() time.Time {
	if p.serverNow.IsZero() {
		p.serverNow = p.received
		if at, ok := ParseDate(p.dates, p.received); ok {
			p.serverNow = at.Add(p.age)
		}
	}
	return p.serverNow
}

// delayUntil returns the time from receipt of the response until t.
func (p *parser) delayUntil(t timeValue) time.Duration {
	if t.format.IsDelta() {
		return t.delay
	}
	return timeUntil(t.at, p.serverTime())
}

// wellKnown holds names that are looked up instead of being parsed: those that nearly every
// response has, and the usual ones of rate limits.
var wellKnown = sync.OnceValue(func() map[string]*nameInfo {
	m := make(map[string]*nameInfo)
	add := func(name string) {
		info, _ := parseName(name)
		m[name] = &info
	}
	for _, name := range strings.Fields(`Content-Type Content-Length Content-Encoding Connection Server
		Cache-Control Vary Etag Last-Modified Link Location Expires Set-Cookie Via Status Transfer-Encoding
		X-Request-Id X-Powered-By X-Frame-Options X-Xss-Protection X-Content-Type-Options Accept-Ranges
		Strict-Transport-Security Referrer-Policy Content-Security-Policy Permissions-Policy Alt-Svc Cf-Ray
		Access-Control-Allow-Origin Access-Control-Expose-Headers X-Github-Media-Type X-Github-Request-Id`) {
		m[name] = &nameInfo{}
	}
	for _, prefix := range []string{"", "X-"} {
		for _, mark := range []string{"Ratelimit", "Rate-Limit"} {
			add(prefix + mark)
			for _, rest := range strings.Fields("-Limit -Remaining -Reset -Used -Resource -Policy -Reset-After -Bucket -Limit-Requests -Remaining-Requests -Reset-Requests -Limit-Tokens -Remaining-Tokens -Reset-Tokens -Retry-After") {
				add(prefix + mark + rest)
			}
		}
	}
	for _, name := range strings.Fields("Retry-After Retry-After-Ms X-Retry-After X-Ms-Retry-After-Ms X-Retry-In") {
		add(name)
	}
	m["Date"], m["Age"] = &nameInfo{kind: kindDate}, &nameInfo{kind: kindAge}
	return m
})

// wellKnownNames are the names of wellKnown that concern limits or time, sorted.
var wellKnownNames = sync.OnceValue(func() (names []string) {
	for name, m := range wellKnown() {
		if m.isRateLimit || m.kind != KindNone {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
})

// isWellKnown reports whether a header is found by its name, regardless of the number of
// headers.
func (p *parser) isWellKnown(name string) bool {
	if p.provider != nil {
		if _, ok := p.provider.Headers[name]; ok {
			return true
		}
	}
	if p.useTable && uniqueRules()[name] != nil {
		return true
	}
	m := wellKnown()[name]
	return m != nil && (m.isRateLimit || m.kind != KindNone)
}

// collectWellKnown collects the headers with well-known names by looking up each name.
func (p *parser) collectWellKnown() {
	known := wellKnown()
	for _, name := range wellKnownNames() {
		if values, ok := p.h[name]; ok {
			p.collectHeader(name, values, known)
		}
	}
	if p.useTable {
		for name := range uniqueRules() {
			p.collectRule(name, known)
		}
	}
	if p.provider != nil {
		for name := range p.provider.Headers {
			if !p.useTable || uniqueRules()[name] == nil {
				p.collectRule(name, known)
			}
		}
	}
}

// collectRule collects the header of a rule, unless the name is also in wellKnown.
func (p *parser) collectRule(name string, known map[string]*nameInfo) {
	if values, ok := p.h[name]; ok && !slices.Contains(wellKnownNames(), name) {
		p.collectHeader(name, values, known)
	}
}
