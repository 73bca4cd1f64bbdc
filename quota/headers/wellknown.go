package headers

import (
	"slices"
	"strings"
	"sync"
)

// wellKnown holds names that are looked up and not read by the grammar: those that nearly every
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

// wellKnownNames are the names of wellKnown that are about limits or time, in order.
var wellKnownNames = sync.OnceValue(func() (names []string) {
	for name, m := range wellKnown() {
		if m.isRateLimit || m.kind != KindNone {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
})

// isWellKnown reports whether a header is found by its name, however many others there are.
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

// collectWellKnown files the headers with well-known names. It looks each name up.
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

// collectRule files the header of a row of the table, unless it is in wellKnown, too.
func (p *parser) collectRule(name string, known map[string]*nameInfo) {
	if values, ok := p.h[name]; ok && !slices.Contains(wellKnownNames(), name) {
		p.collectHeader(name, values, known)
	}
}
