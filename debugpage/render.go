package debugpage

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the files of the page
	"encoding/base64"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"time"

	"github.com/heed-go/heed/internal/explain"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// contentSecurityPolicy permits the style and the script of the page, and requests of the
// script and of forms to the same address; nothing else.
var contentSecurityPolicy = fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
	source(pageCSS), source(pageJS))

// source returns the source expression of an inline style or script.
func source(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

var pageTemplate = template.Must(template.New("page").Funcs(template.FuncMap{
	"css":     func() template.CSS { return template.CSS(pageCSS) },
	"js":      func() template.JS { return template.JS(pageJS) },
	"number":  func(n any) string { return number(toInt64(n)) },
	"decimal": decimal,
	"clock":   func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"iso":     func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"limit":   explain.Limit,
}).Parse(pageHTML))

func toInt64(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	case *int64:
		return *n
	case *int:
		return int64(*n)
	case uint64:
		return int64(n)
	}
	return 0
}

// html returns the page.
func (s state) html() ([]byte, error) {
	var b bytes.Buffer
	err := pageTemplate.Execute(&b, s)
	return b.Bytes(), err
}

// These methods are what the template needs in addition to the data.

// LongestWaitText returns the longest time that a caller has waited.
func (s summary) LongestWaitText() string { return explain.Duration(s.longestWait) }

// ThrottledPercent returns the part of the attempts of the last minute that was throttled.
func (s summary) ThrottledPercent() string {
	if s.SentLastMinute == 0 {
		return "0"
	}
	return decimal(100 * float64(s.ThrottledLastMin) / float64(s.SentLastMinute))
}

// State returns the CSS class of the row: "held", "probe", "slow" or "ok".
func (r quotaRow) State() string {
	switch {
	case r.Hold != nil && (r.Hold.Probe || r.Hold.endsIn <= 0):
		return "probe"
	case r.Hold != nil:
		return "held"
	case r.full(), r.usedUp():
		return "slow"
	}
	return "ok"
}

// StateText returns the state of a quota without a hold.
func (r quotaRow) StateText() string {
	switch {
	case r.full():
		return "full"
	case r.usedUp():
		return "used up"
	}
	return "open"
}

// full reports whether as many requests are in flight as may be.
func (r quotaRow) full() bool { return r.Concurrency > 0 && r.InFlight >= r.Concurrency }

// usedUp reports whether nothing is left of a limit, so that further requests wait.
func (r quotaRow) usedUp() bool {
	return slices.ContainsFunc(r.Limits, func(l limitRow) bool { return l.Remaining != nil && *l.Remaining <= 0 })
}

// Host returns the host by which the page is filtered; "" for all.
func (s state) Host() string { return s.filter.host }

// Kind returns the kind by which decisions are filtered; "" for all.
func (s state) Kind() kind { return s.filter.kind }

// CanForget reports whether the page offers to forget what is known of a host.
func (s state) CanForget() bool { return s.canForget }

// A kindLink shows the decisions of one kind.
type kindLink struct {
	Name, Href string
	Current    bool
}

// Kinds returns links to the decisions of all kinds and of each one, with the same host.
func (s state) Kinds() []kindLink {
	links := []kindLink{s.kindLink("all", "")}
	for _, k := range kinds {
		links = append(links, s.kindLink(string(k), k))
	}
	return links
}

func (s state) kindLink(name string, k kind) kindLink {
	query := url.Values{}
	if s.filter.host != "" {
		query.Set("host", s.filter.host)
	}
	if k != "" {
		query.Set("kind", string(k))
	}
	return kindLink{Name: name, Href: "?" + query.Encode() + "#decisions", Current: s.filter.kind == k}
}

// Unlimited reports whether nothing is known of the quota.
func (r quotaRow) Unlimited() bool { return len(r.Limits) == 0 && r.Rate == 0 && r.Concurrency == 0 }

// HeldFor returns the time until the end of the hold.
func (h hold) HeldFor() string { return explain.Duration(h.endsIn) }

// Due reports whether the end of the hold has come and no probe has been sent.
func (h hold) Due() bool { return !h.Probe && h.endsIn <= 0 }

// Title returns the name of the limit, or its unit.
func (l limitRow) Title() string {
	if l.Name == "" {
		return l.Unit
	}
	return l.Name
}

// Window returns what the limit allows, such as "5,000 requests per 1 h".
func (l limitRow) Window() string {
	text := l.Unit
	if l.Size > 0 {
		text = number(l.Size) + " " + l.Unit
	}
	if l.per > 0 {
		text += " per " + explain.Duration(l.per)
	}
	return text
}

// Percent returns the part of the limit that is left, from 0 to 100.
func (l limitRow) Percent() int64 {
	if l.Remaining == nil || l.Size <= 0 {
		return 0
	}
	return min(max(int64(100*float64(*l.Remaining)/float64(l.Size)), 0), 100)
}

// HasBar reports whether the part that is left is known.
func (l limitRow) HasBar() bool { return l.Remaining != nil && l.Size > 0 }

// Level returns the CSS class of the bar: "empty", "low" or "fine".
func (l limitRow) Level() string {
	switch {
	case l.Remaining != nil && *l.Remaining <= 0:
		return "empty"
	case l.Percent() < 20:
		return "low"
	}
	return "fine"
}

// ResetText returns the time until units come back.
func (l limitRow) ResetText() string { return explain.Duration(l.resetIn) }

// LongestWaitText returns the longest time that a caller has waited.
func (t queueTable) LongestWaitText() string { return explain.Duration(t.longestWait) }

// LongestWaitText returns the longest time that a caller has waited.
func (r queueRow) LongestWaitText() string { return explain.Duration(r.longestWait) }

// NextText returns the time until the next caller is granted.
func (r queueRow) NextText() string { return explain.Duration(r.nextIn) }

// Left returns the retries that are allowed now; nil if they are not limited.
func (b budgetState) Left() *int64 {
	if b.Allowed == nil {
		return nil
	}
	left := max(*b.Allowed-b.Retries, 0)
	return &left
}

// Percent returns the part of the budget that is left, from 0 to 100.
func (b budgetState) Percent() int64 {
	if b.Allowed == nil || *b.Allowed <= 0 {
		return 0
	}
	return min(100**b.Left()/(*b.Allowed), 100)
}
