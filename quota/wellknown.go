package quota

import (
	"slices"
	"strings"
	"sync"
)

// famous holds names that are looked up and not read by the grammar: those that nearly every
// response has, and the usual ones of rate limits.
var famous = sync.OnceValue(func() map[string]*meaning {
	m := make(map[string]*meaning)
	learn := func(name string) {
		said, _ := readName(name)
		m[name] = &said
	}
	for _, name := range strings.Fields(`Content-Type Content-Length Content-Encoding Connection Server
		Cache-Control Vary Etag Last-Modified Link Location Expires Set-Cookie Via Status Transfer-Encoding
		X-Request-Id X-Powered-By X-Frame-Options X-Xss-Protection X-Content-Type-Options Accept-Ranges
		Strict-Transport-Security Referrer-Policy Content-Security-Policy Permissions-Policy Alt-Svc Cf-Ray
		Access-Control-Allow-Origin Access-Control-Expose-Headers X-Github-Media-Type X-Github-Request-Id`) {
		m[name] = &meaning{}
	}
	for _, prefix := range []string{"", "X-"} {
		for _, mark := range []string{"Ratelimit", "Rate-Limit"} {
			learn(prefix + mark)
			for _, rest := range strings.Fields("-Limit -Remaining -Reset -Used -Resource -Policy -Reset-After -Bucket -Limit-Requests -Remaining-Requests -Reset-Requests -Limit-Tokens -Remaining-Tokens -Reset-Tokens -Retry-After") {
				learn(prefix + mark + rest)
			}
		}
	}
	for _, name := range strings.Fields("Retry-After Retry-After-Ms X-Retry-After X-Ms-Retry-After-Ms X-Retry-In") {
		learn(name)
	}
	m["Date"], m["Age"] = &meaning{field: fieldDate}, &meaning{field: fieldAge}
	return m
})

// wellKnown are the names of famous that are about limits or time, in order.
var wellKnown = sync.OnceValue(func() (names []string) {
	for name, m := range famous() {
		if m.marked || m.field != FieldNone {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
})

// isWellKnown reports whether a header is found by its name, however many others there are.
func (p *parser) isWellKnown(name string) bool {
	if p.vendor != nil {
		if _, ok := p.vendor.Headers[name]; ok {
			return true
		}
	}
	if p.table && distinct()[name] != nil {
		return true
	}
	m := famous()[name]
	return m != nil && (m.marked || m.field != FieldNone)
}

// collectWellKnown files the headers with well-known names. It looks each name up.
func (p *parser) collectWellKnown() {
	famous := famous()
	for _, name := range wellKnown() {
		if values, ok := p.h[name]; ok {
			p.collectHeader(name, values, famous)
		}
	}
	if p.table {
		for name := range distinct() {
			p.collectRow(name, famous)
		}
	}
	if p.vendor != nil {
		for name := range p.vendor.Headers {
			if !p.table || distinct()[name] == nil {
				p.collectRow(name, famous)
			}
		}
	}
}

// collectRow files the header of a row of the table, unless it is in famous, too.
func (p *parser) collectRow(name string, famous map[string]*meaning) {
	if values, ok := p.h[name]; ok && !slices.Contains(wellKnown(), name) {
		p.collectHeader(name, values, famous)
	}
}
