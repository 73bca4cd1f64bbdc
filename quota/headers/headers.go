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
	return r.parse(nil, status, h, received, received)
}

// Parse returns what a response of host states about limits. If host is empty or unknown,
// Parse uses the general rules and the header names that have only one meaning.
//
// Delays are between 0 and 366 days for any input, and the work is bounded: of more than 512
// headers whose names may be about limits, well-known ones aside, the first by name are read, of
// more than 32 limits the first by name, and no value longer than 4 KiB.
func (r *Reader) Parse(host string, status int, h http.Header, received time.Time) Report {
	return r.parse(r.Provider(host), status, h, received, received)
}

// parse reads a response of the host that provider describes. A nil provider means an
// unknown host.
func (r *Reader) parse(provider *Provider, status int, h http.Header, sent, received time.Time) (out Report) {
	hasRules := provider != nil && provider.Headers != nil
	retryAfter := h["Retry-After"]
	var p *parser // nil: no header states a limit
	switch {
	case len(retryAfter) == 0 || len(h) > 1 || hasRules:
		p = r.collect(provider, h, hasRules, sent, received)
	default:
		c := clock{header: h, sent: sent, received: received}
		out.readRetryAfter(retryAfter, 0, &c)
	}
	if p == nil {
		out.Throttled = isRejection(provider, status, out.HasRetryAfter, false)
	} else {
		p.finish(status)
		out = p.out
		p.reset()
		parserPool.Put(p)
	}
	out.provider = provider
	if out.Throttled || out.HasRetryAfter || len(out.Limits) > 0 {
		out.resolve(status)
	}
	return out
}

// isRejection reports whether a response is a rejection because of a limit. A 429 is one by
// definition. 403 and 503 have other meanings as well: an exhausted limit of requests makes them
// a rejection, and Retry-After makes a 403 one. Some servers use 418, 420 and 529 for
// rejections.
func isRejection(p *Provider, status int, hasRetryAfter, exhausted bool) bool {
	if p != nil && p.isThrottledStatus(status) {
		return true
	}
	switch status {
	case http.StatusTooManyRequests, 420, 529:
		return true
	case http.StatusTeapot:
		return hasRetryAfter
	case http.StatusForbidden:
		return hasRetryAfter || exhausted
	case http.StatusServiceUnavailable:
		return exhausted
	}
	return false
}

// Read returns what a response that was received at now states about limits: its headers,
// and the first bytes of its body if these may state more. sent is when its request was sent, or
// zero if that is not known: a success whose Date is between sent and now shows that the clocks of
// the client and the server agree, however long the server took. It reads the body of a rejection whose
// headers state a delay only if provider has ErrorCodes. If it reads from a body, it replaces
// resp.Body by one that returns all of its bytes, and waits at most 100 ms for the first ones.
// provider is the result of Provider for the host; it may be nil.
func (r *Reader) Read(provider *Provider, resp *http.Response, sent, now time.Time) Report {
	if sent.IsZero() || sent.After(now) || resp.StatusCode >= 400 { // a rejected request must not be sent again too early
		sent = now
	}
	rep := r.parse(provider, resp.StatusCode, resp.Header, sent, now)
	enough := r.Body == nil && rep.Throttled && rep.HasRetryAfter && (provider == nil || len(provider.ErrorCodes) == 0)
	if enough || resp.Body == nil || resp.Body == http.NoBody || !r.inspectsBody(provider, resp.StatusCode, resp.Header) {
		return rep
	}
	if resp.StatusCode < 400 && resp.ContentLength > maxPeek {
		return rep // rejections are shorter
	}
	// If the length is unknown, the end of the body may never arrive, so only the first
	// piece is read.
	return r.addBody(rep, resp, peek(resp, resp.ContentLength < 0))
}

// addBody adds to rep what the first bytes of a body state. It is separate so that a report
// without a body stays on the stack.
func (r *Reader) addBody(rep Report, resp *http.Response, head []byte) Report {
	if len(head) > 0 {
		r.ReadBody(resp.StatusCode, resp.Header, head, &rep)
	}
	return rep
}

// Provider returns the entry of Hosts for host, or else that of the built-in table for host or
// for its nearest parent domain. It returns nil if the host is unknown.
func (r *Reader) Provider(host string) *Provider {
	if host == "" {
		return nil
	}
	host = httphost.Name(host)
	if _, ok := r.Hosts[host]; ok {
		provider := r.Hosts[host] // is allocated
		return &provider
	}
	if r.NoProviderTable {
		return nil
	}
	index := providersByHost()
	if p, ok := index[host]; ok {
		return p
	}
	for i := 1; i < len(host); i++ {
		if host[i] == '.' {
			if p, ok := index[host[i:]]; ok {
				return p
			}
		}
	}
	return nil
}

const (
	maxCandidates = 512  // headers read whose names are not well known, but may be about limits
	maxGroups     = 32   // limits read
	maxValueLen   = 4096 // bytes of a value
	maxInstances  = 16   // instances of one header
)

// A parser parses one response: collect sorts its headers into groups, and finish makes limits
// of them.
type parser struct {
	clock      clock
	provider   *Provider
	useTable   bool
	candidates int  // headers with names that had to be parsed
	overflow   bool // there were more groups or candidates than are read
	cached     bool // a header states that the response is from a cache

	out          Report
	groups       []headerGroup
	retryHeaders []retryHeader
	custom       []customHeader
	limits       []limitBuilder
	policies     []headerValue
}

// A headerGroup holds the headers of one bucket.
type headerGroup struct {
	nameInfo
	firstHeader string          // the first of the names, for a stable order; see sortGroups
	windows     []time.Duration // of the numbers in a value, if a rule states them
	values      [KindRetryAfter]headerValue
}

// A headerValue is the value of one field of a bucket, and the name of its header.
type headerValue struct {
	header, value string
	scale         time.Duration // unit of time of a bare number; 0: not stated
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
	clear(p.groups)
	clear(p.limits)
	clear(p.retryHeaders)
	clear(p.custom)
	clear(p.policies)
	*p = parser{groups: p.groups[:0], retryHeaders: p.retryHeaders[:0], custom: p.custom[:0], limits: p.limits[:0], policies: p.policies[:0]}
}

// collect returns a parser with the headers in groups; nil if none may be about limits. The result
// does not depend on the order of the map: if there is more than is read, the headers are collected
// again in the order of their names.
func (r *Reader) collect(provider *Provider, h http.Header, hasRules bool, sent, received time.Time) (p *parser) {
	for name, values := range h {
		class, spelling := classify(name)
		if class == nameIgnored && !hasRules {
			continue
		}
		if p == nil {
			p = parserPool.Get().(*parser)
			p.clock.header, p.clock.sent, p.clock.received = h, sent, received
			p.provider, p.useTable = provider, !r.NoProviderTable
		}
		if p.collectHeader(name, values, class, spelling); p.overflow {
			p.collectInOrder()
			break
		}
	}
	return p
}

// collectInOrder collects the headers with well-known names, and then the first of the others.
func (p *parser) collectInOrder() {
	c, provider, useTable := p.clock, p.provider, p.useTable
	p.reset()
	p.clock, p.provider, p.useTable = c, provider, useTable
	var known, others []string
	for name := range c.header {
		class, _ := classify(name)
		_, hasRule := p.rule(name, class)
		switch {
		case hasRule, class != nameUnknown && class != nameIgnored:
			known = insertName(known, name)
		case class == nameUnknown && mayStateLimit(name):
			others = insertName(others, name)
		}
	}
	for _, name := range append(known, others...) {
		class, spelling := classify(name)
		p.collectHeader(name, c.header[name], class, spelling)
	}
}

// insertName inserts a name into a sorted list, of which the first maxCandidates are kept.
func insertName(list []string, name string) []string {
	if len(list) == maxCandidates && name > list[len(list)-1] {
		return list
	}
	i, _ := slices.BinarySearch(list, name)
	list = slices.Insert(list, i, name)
	return list[:min(len(list), maxCandidates)]
}

// rule returns the rule for name, of the host or of the table.
func (p *parser) rule(name string, class nameClass) (rule Rule, ok bool) {
	if p.provider != nil && p.provider.Headers != nil {
		if rule, ok = p.provider.Headers[name]; ok {
			return rule, true
		}
	}
	if class == nameOfRule && p.useTable {
		if unique := uniqueRules()[name]; unique != nil {
			return *unique, true
		}
	}
	return rule, ok
}

// collectHeader adds one header, with the result of classify for its name, to its group.
func (p *parser) collectHeader(name string, values []string, class nameClass, spelling uint8) {
	if len(values) == 0 {
		return
	}
	if class == nameOfRule || p.provider != nil && p.provider.Headers != nil {
		if rule, ok := p.rule(name, class); ok {
			p.collectByRule(name, values, &rule)
			return
		}
	}
	switch class {
	case nameIgnored:
	case nameAge:
		p.clock.age = parseAge(values[0])
	case nameSuggested:
		if n, ok := parseDecimal(trimBlanks(values[0])); ok && !n.negative {
			p.out.SuggestedDelay = boundDelay(n.duration(time.Millisecond))
		}
	case nameCache:
		p.cached = p.cached || isCacheHit(name, values)
	case nameRetryAfter:
		p.retryHeaders = append(p.retryHeaders, retryHeader{values, 0, true})
	case nameUnknown, nameOfRule:
		p.collectUnknown(name, values)
	case nameDelay, nameDelayMillis, nameDelayOfLimit:
		p.retryHeaders = append(p.retryHeaders, retryHeader{values, knownNames[class].scale, false})
	default:
		p.store(name, joinValues(values), &knownNames[class], spelling, nil)
	}
}

// collectUnknown adds a header whose name must be parsed.
func (p *parser) collectUnknown(name string, values []string) {
	if !mayStateLimit(name) || isFallbackTier(name) {
		return
	}
	m, ok := parseName(name)
	switch {
	case m.kind == KindRetryAfter:
		p.retryHeaders = append(p.retryHeaders, retryHeader{values, m.scale, false})
	case ok || isUsageValue(&m, values):
		p.store(name, joinValues(values), &m, m.spelling, nil)
	}
	if p.candidates++; p.candidates > maxCandidates {
		p.overflow = true
	}
}

// collectByRule adds a header that rule describes.
func (p *parser) collectByRule(name string, values []string, rule *Rule) {
	switch {
	case rule.Read != nil:
		p.custom = append(p.custom, customHeader{name, joinValues(values), rule.Read})
	case rule.Kind == KindRetryAfter:
		p.retryHeaders = append(p.retryHeaders, retryHeader{values, rule.Scale, name == "Retry-After"})
	case rule.Kind != KindNone:
		m := rule.applyTo(name)
		p.store(name, joinValues(values), &m, m.spelling, rule.Windows)
	}
}

// isUsageValue reports whether a header whose name is ambiguous has a value in a form that
// only limits have: api-usage=135/5000, or 2/40 alone.
func isUsageValue(m *nameInfo, values []string) bool {
	if m.kind != KindLimit || len(values[0]) > maxValueLen {
		return false
	}
	v := trimBlanks(values[0])
	slash := strings.IndexByte(v, '/')
	return slash > 0 && (strings.Contains(v, "=") || countPrefix(v, isDigit) == slash && countPrefix(v[slash+1:], isDigit) == len(v)-slash-1)
}

// store adds a value to the field of its bucket. If two headers state the same field of the
// same bucket, the first name in alphabetical order is used. windows are those of a rule.
func (p *parser) store(name, value string, m *nameInfo, spelling uint8, windows []time.Duration) {
	if value == "" || len(value) > maxValueLen {
		return
	}
	g := p.findGroup(name, m, spelling)
	if g == nil {
		return
	}
	if windows != nil {
		g.windows = windows
	}
	if s := &g.values[m.kind]; s.header == "" || name < s.header {
		s.header, s.value, s.scale = name, value, m.scale
	}
}

// findGroup returns the group of a name, or nil if there are too many.
func (p *parser) findGroup(name string, m *nameInfo, spelling uint8) *headerGroup {
	for i := range p.groups {
		g := &p.groups[i]
		if g.qualifierHash != m.qualifierHash || g.spelling != spelling {
			continue
		}
		if m.qualifierHash != 0 && name < g.firstHeader { // Minute and Minutely are the same bucket
			g.firstHeader, g.singleQualifier, g.window = name, m.singleQualifier, m.window
		}
		g.isRateLimit, g.vague = g.isRateLimit || m.isRateLimit, g.vague && m.vague
		if m.unit != g.unit {
			g.unit = max(g.unit, m.unit) // a user's rule may state it for one header only
		}
		return g
	}
	n := len(p.groups)
	if n == maxGroups {
		p.overflow = true
		return nil
	}
	if n == cap(p.groups) {
		p.groups = append(p.groups, headerGroup{})
	}
	p.groups = p.groups[:n+1]
	g := &p.groups[n] // cleared by reset
	g.nameInfo, g.firstHeader = *m, name
	g.spelling = spelling
	return g
}

// joinValues returns all values of a header as one list.
func joinValues(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return strings.Join(values[:min(len(values), maxInstances)], ", ")
}
