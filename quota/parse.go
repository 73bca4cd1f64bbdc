package quota

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/httphost"
)

// A Reader reads what answers say about limits. The zero Reader knows the
// dialects and a table of APIs that leave something out. Fields must not change
// after the first use; a Reader may be used by many goroutines at once.
type Reader struct {
	Hosts   map[string]Vendor // your own rows by host name, in place of those of the table
	NoTable bool              // go by rules alone (Hosts still count)

	// Body reads the first bytes of a body for what the headers do not say, and
	// adds it to r. nil: ReadBody.
	// It is asked about answers that WantsBody is true of.
	Body func(status int, h http.Header, peek []byte, r *Report)
}

// Parse reads what an answer says about limits, as the zero Reader does for a
// host that it does not know. received is the local time of receipt; where times
// are absolute, the answer's own Date counts before it.
func Parse(status int, h http.Header, received time.Time) Report {
	var r Reader
	return r.Parse("", status, h, received)
}

// Parse reads what an answer of host says about limits. A host that is "" or
// unknown is read by rules and by header names that mean one thing only.
//
// Whatever the headers hold, delays are between 0 and 366 days, and the work is bounded: of
// a response with more than 512 header names only the well-known ones are read, of more
// than 32 limits the first by name, and no value longer than 4 KiB.
func (r *Reader) Parse(host string, status int, h http.Header, received time.Time) Report {
	return r.parse(r.vendor(host), status, h, received)
}

// parse reads an answer of the host that v is about; nil: nothing is known of it.
func (r *Reader) parse(v *Vendor, status int, h http.Header, received time.Time) Report {
	p := parsers.Get().(*parser)
	p.h, p.status, p.received, p.vendor, p.table = h, status, received, v, !r.NoTable
	p.collect()
	p.conclude()
	p.out.resolve(status)
	p.out.vendor = v
	out := p.out
	p.forget()
	parsers.Put(p)
	return out
}

// vendor returns what is known about host, nil if nothing.
func (r *Reader) vendor(host string) *Vendor {
	if host == "" {
		return nil
	}
	host = httphost.Name(host)
	if len(r.Hosts) > 0 {
		if v, ok := r.Hosts[host]; ok {
			return &v
		}
	}
	if r.NoTable {
		return nil
	}
	return vendorOf(host)
}

const (
	maxHeaders = 512  // of a response with more, only the well-known names are read
	maxGroups  = 32   // limits read
	maxValue   = 4096 // bytes of a value
	maxLines   = 16   // instances of one header
)

// A parser reads one answer.
type parser struct {
	h        http.Header
	status   int
	received time.Time
	now      time.Time // the server's clock; zero until it is needed
	age      time.Duration
	vendor   *Vendor
	table    bool
	full     bool    // there were more groups than are read
	said     meaning // of the name that was read last

	out     Report
	dates   []string // values of Date
	groups  []group
	retries []retryHeader
	odd     []odd
	ledger  ledger
}

// A retryHeader is one header of the Retry-After family.
type retryHeader struct {
	values []string
	scale  time.Duration
	plain  bool // it is Retry-After itself
}

// An odd header has a reader of its own.
type odd struct {
	header, value string
	read          func(string, *Report)
}

// parsers keeps the room that parsers work in. Nothing of an answer stays there.
var parsers = sync.Pool{New: func() any { return new(parser) }}

// forget makes p new again, but keeps its memory.
func (p *parser) forget() {
	p.forgetGroups()
	clear(p.ledger.list)
	clear(p.ledger.policies)
	p.ledger.list, p.ledger.policies = p.ledger.list[:0], p.ledger.policies[:0]
	p.h, p.vendor, p.dates, p.out = nil, nil, nil, Report{}
	p.now, p.age = time.Time{}, 0
}

// forgetGroups undoes collect.
func (p *parser) forgetGroups() {
	clear(p.groups)
	clear(p.retries)
	clear(p.odd)
	p.groups, p.retries, p.odd, p.full = p.groups[:0], p.retries[:0], p.odd[:0], false
}

// A group is the headers of one bucket.
type group struct {
	meaning
	rep     string          // the first of the names, for a stable order
	windows []time.Duration // of the numbers in a value, where a row tells them
	slots   [FieldRetryAfter]slot
}

// A slot is the value of one field of a bucket, and the header it came in.
type slot struct {
	header, value string
	scale         time.Duration // unit of time of a bare number, 0: not named
}

// collect sorts the headers into groups. Which of them are read does not depend on the order
// of a map: if there are too many groups, they are collected again in the order of their names.
func (p *parser) collect() {
	if len(p.h) > maxHeaders {
		p.collectWellKnown()
		return
	}
	famous := famous()
	for name, values := range p.h {
		p.collectHeader(name, values, famous)
	}
	if !p.full {
		return
	}
	p.forgetGroups()
	p.collectWellKnown()
	for _, name := range slices.Sorted(maps.Keys(p.h)) {
		if !p.isWellKnown(name) {
			p.collectHeader(name, p.h[name], famous)
		}
	}
}

// collectHeader files one header.
func (p *parser) collectHeader(name string, values []string, famous map[string]*meaning) {
	if len(values) == 0 {
		return
	}
	m, row, ok := p.meaning(name, famous)
	switch {
	case row != nil && row.Read != nil:
		p.odd = append(p.odd, odd{name, join(values), row.Read})
	case m.field == FieldRetryAfter:
		p.retries = append(p.retries, retryHeader{values, m.scale, name == "Retry-After"})
	case m.field == fieldDate:
		p.dates = values
	case m.field == fieldAge:
		p.age = age(values[0])
	case ok || isPairs(m, values):
		p.put(name, join(values), m, row)
	}
}

// isPairs reports whether a header that may be about something else holds what
// only limits look like: api-usage=135/5000, or 2/40 alone.
func isPairs(m *meaning, values []string) bool {
	if m.field != FieldLimit || len(values) == 0 || len(values[0]) > maxValue {
		return false
	}
	v := trim(values[0])
	slash := strings.IndexByte(v, '/')
	return slash > 0 && (strings.Contains(v, "=") || prefix(v, isDigit) == slash && slash+1 < len(v) && prefix(v[slash+1:], isDigit) == len(v)-slash-1)
}

// meaning asks the rows of the host, then those that hold everywhere, then rules.
func (p *parser) meaning(name string, famous map[string]*meaning) (m *meaning, row *Meaning, ok bool) {
	if p.vendor != nil && p.vendor.Headers != nil {
		if r, found := p.vendor.Headers[name]; found {
			return r.overlay(name), &r, r.Says != FieldNone
		}
	}
	if m, ok := famous[name]; ok {
		return m, nil, m.marked || m.field != FieldNone && m.field <= FieldRetryAfter
	}
	if p.table {
		if r, found := distinct()[name]; found {
			return r.overlay(name), r, r.Says != FieldNone
		}
	}
	p.said, ok = readName(name)
	return &p.said, nil, ok
}

// overlay returns what the rules say of name, corrected by row.
func (row *Meaning) overlay(name string) *meaning {
	m, _ := readName(name)
	m.field, m.scale, m.marked = row.Says, row.Scale, true
	if row.Unit != "" {
		m.unit = row.Unit
	}
	if row.Name != "" {
		m.single, m.bucket = row.Name, hashWord(0, []byte(row.Name))
	}
	return &m
}

// put files a value under its bucket and field. Where two headers say the same
// field of the same bucket, the first name in the alphabet counts.
func (p *parser) put(name, value string, m *meaning, row *Meaning) {
	if value == "" || len(value) > maxValue {
		return
	}
	g := p.group(name, m)
	if g == nil {
		return
	}
	if row != nil && row.Windows != nil {
		g.windows = row.Windows
	}
	if s := &g.slots[m.field]; s.header == "" || name < s.header {
		*s = slot{name, value, m.scale}
	}
}

func (p *parser) group(name string, m *meaning) *group {
	for i := range p.groups {
		if g := &p.groups[i]; g.bucket == m.bucket && g.spelling == m.spelling {
			g.rep = min(g.rep, name)
			g.marked = g.marked || m.marked
			g.unit = max(g.unit, m.unit) // a user's row may say it of one header only
			return g
		}
	}
	if len(p.groups) == maxGroups {
		p.full = true
		return nil
	}
	return p.newGroup(name, m)
}

// newGroup takes the next place, which forget has cleared: a group is large.
func (p *parser) newGroup(name string, m *meaning) *group {
	n := len(p.groups)
	if n == cap(p.groups) {
		p.groups = append(p.groups, group{})
	}
	p.groups = p.groups[:n+1]
	g := &p.groups[n]
	g.meaning, g.rep = *m, name
	return g
}

// join returns all instances of a header as one list.
func join(values []string) string {
	if len(values) == 1 {
		return values[0]
	}
	return strings.Join(values[:min(len(values), maxLines)], ", ")
}

// clock returns the time at the server when the answer came: its Date, older by
// the age that caches have added. Without a Date it is the local time.
func (p *parser) clock() time.Time {
	if p.now.IsZero() {
		p.now = p.received
		if at, ok := dateOf(p.dates, p.received); ok {
			p.now = at.Add(p.age)
		}
	}
	return p.now
}

// delay turns an instant into the time from the answer until it.
func (p *parser) delay(t instant) time.Duration {
	if t.form.Relative() {
		return t.delay
	}
	return clampDelay(t.at, p.clock())
}
