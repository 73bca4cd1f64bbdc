package headers

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Provider describes what the responses of one API do not state: the meaning of names
// that the general rules cannot interpret, the units of bare numbers, and the lengths of
// windows. All fields are optional.
type Provider struct {
	// Name is the name of the API.
	Name string

	// Hosts holds host names such as "api.github.com". A name that begins with a dot, such
	// as ".zendesk.com", matches all hosts below.
	Hosts []string

	// Headers holds rules by header name in canonical form.
	Headers map[string]Rule

	// LimitHints complete limits that responses state in part. The first hint that matches
	// is used.
	LimitHints []LimitHint

	// ThrottledStatuses are the statuses of rejections because of a limit, in addition to
	// 429.
	ThrottledStatuses []int

	// InspectSuccessBody means that rejections are stated in bodies only, also in those of
	// successes: an error code in a member that holds errors, or one of ErrorCodes at the top.
	InspectSuccessBody bool

	// AccountParams are the query parameters that identify the account, in any case, in addition
	// to api_key and apikey.
	AccountParams []string

	// AccountHeaders are the request headers, in canonical form, that identify the account, in
	// addition to Authorization, X-Api-Key and the other usual ones.
	AccountHeaders []string

	// AccountSegment is the beginning of the path segment that identifies the account, if it is
	// the first segment, or the first after /file: "bot" for /bot<token>/sendMessage and
	// /file/bot<token>/photo.jpg. Empty means that there is none.
	AccountSegment string

	// ErrorCodes are the error codes of rejections because of a limit, on any status from
	// 400 on, and of a 200 with InspectSuccessBody. They count in known members of JSON, as strings or
	// numbers, and as words of XML and prose, unless they begin with a digit.
	ErrorCodes []string

	// RejectionWait is the time after which the limit admits requests again if a rejection
	// states none. Zero means that the API documents none.
	RejectionWait time.Duration
}

// A Rule describes one header.
type Rule struct {
	// Kind is the meaning of the value.
	Kind Kind

	// Name is the name of the bucket. Headers with the same name belong together.
	Name string

	// Unit is what is counted. Empty means requests.
	Unit string

	// Scale is the unit of time of a bare number. Numbers from 1e11 on are instants
	// nevertheless. Zero means that the size of the number determines the unit.
	Scale time.Duration

	// Windows are the windows of the numbers in the value, in order. Nil means not known.
	Windows []time.Duration

	// Unique means that the header name has this meaning on all hosts.
	Unique bool

	// Read parses values with a syntax of their own, and adds the result to r. Nil means
	// the general syntax.
	Read func(value string, r *Report)
}

// applyTo returns what the general rules state about name, corrected by rule.
func (rule *Rule) applyTo(name string) nameInfo {
	m, _ := parseName(name)
	m.kind, m.scale, m.isRateLimit = rule.Kind, rule.Scale, true
	if rule.Unit != "" {
		m.unit = rule.Unit
	}
	if rule.Name != "" {
		m.singleQualifier, m.qualifierHash = rule.Name, hashWord(0, []byte(rule.Name))
	}
	return m
}

// A Kind is the meaning of the value of a header.
type Kind uint8

const (
	KindNone       Kind = iota // not relevant
	KindLimit                  // maximum number of units in a window
	KindRemaining              // units left
	KindUsed                   // units used
	KindReset                  // time at which units are restored: an instant or a delay
	KindResetAfter             // time after which units are restored: a delay
	KindWindow                 // length of the window
	KindRate                   // units restored per second, or per window
	KindName                   // name of the bucket
	KindPolicy                 // limits with their windows
	KindRetryAfter             // time after which to retry
)

// A LimitHint completes a limit that the response states in part. Name, StatedUnit, Limit
// and WithoutLimit select the limits that it applies to; Rename, Unit, Max and Window
// complete them.
type LimitHint struct {
	// Name is the stated name of the limit. "-" means that it has none. Empty matches any
	// name.
	Name string

	// StatedUnit is the stated unit of the limit. Empty matches any unit.
	StatedUnit string

	// Limit is the stated size of the limit. Zero matches any size.
	Limit int64

	// WithoutLimit matches only limits whose size is not stated.
	WithoutLimit bool

	// Rename is the name to use. Empty keeps the stated name.
	Rename string

	// Unit is the actual unit. Empty keeps the stated unit.
	Unit string

	// Max is the size, if the response does not state it. Zero means that it stays unknown.
	Max int64

	// Window is the window, if the response does not state it. Zero means that it stays
	// unknown.
	Window time.Duration
}

// applyHints sets what the response does not state.
func (p *Provider) applyHints(l *Limit) {
	for i := range p.LimitHints {
		h := &p.LimitHints[i]
		if !h.matches(l) {
			continue
		}
		if h.Rename != "" {
			l.Name = h.Rename
		}
		if h.Unit != "" {
			l.Unit = h.Unit
		}
		if h.Max > 0 && !l.HasLimit {
			l.Limit, l.HasLimit = h.Max, true
		}
		if l.Window == 0 && l.ResetAfter-time.Minute <= h.Window {
			l.Window = h.Window
		}
		return
	}
}

func (h *LimitHint) matches(l *Limit) bool {
	return (h.Name == "" || h.Name == l.Name || h.Name == "-" && l.Name == "") &&
		(h.StatedUnit == "" || h.StatedUnit == l.Unit) && (h.Limit == 0 || h.Limit == l.Limit) && !(h.WithoutLimit && l.HasLimit)
}

// isThrottledStatus reports whether status is a rejection because of a limit for p.
func (p *Provider) isThrottledStatus(status int) bool {
	return slices.Contains(p.ThrottledStatuses, status)
}

// ProviderByName returns the row of the built-in table with the given Name.
func ProviderByName(name string) (Provider, bool) {
	for i := range providers {
		if p := &providers[i]; len(name) >= len(p.Name) && equalFold(name[:len(p.Name)], p.Name) {
			return *p, true
		}
	}
	return Provider{}, false
}

var providersByHost = sync.OnceValue(func() map[string]*Provider {
	m := make(map[string]*Provider)
	for i := range providers {
		for _, host := range providers[i].Hosts {
			m[host] = &providers[i]
		}
	}
	return m
})

// Functions that parse the headers of the table with a syntax of their own.

// readMetaUsage reads the usage headers of Meta: JSON with the usage in percent, and the
// minutes until access is restored. Some headers have a list of such objects per business.
func readMetaUsage(v string, r *Report) {
	var top map[string]json.RawMessage
	if json.Unmarshal([]byte(v), &top) != nil {
		return
	}
	addMetaUsage(top, r)
	for _, id := range slices.Sorted(maps.Keys(top)) {
		var uses []map[string]json.RawMessage
		if json.Unmarshal(top[id], &uses) == nil {
			for _, use := range uses {
				addMetaUsage(use, r)
			}
		}
	}
}

func addMetaUsage(object map[string]json.RawMessage, r *Report) {
	for _, key := range slices.Sorted(maps.Keys(object)) {
		n, ok := parseDecimal(string(object[key]))
		switch {
		case !ok || n.negative:
		case key == "estimated_time_to_regain_access":
			if wait := n.duration(time.Minute); wait > r.RetryAfter {
				r.RetryAfter, r.HasRetryAfter, r.RetryFormat = wait, true, FormatDeltaSeconds
			}
		case len(r.Limits) < maxGroups:
			used := min(n.whole, 100)
			r.Limits = append(r.Limits, Limit{Name: key, Unit: "percent", Limit: 100, Used: used, Remaining: 100 - used,
				HasLimit: true, HasUsed: true, HasRemaining: true})
		}
	}
}

// readSentry reads "60:transaction:key, 2700:default;error:organization": the time for
// which each category of data is rejected. The request may be of any category, so the
// longest time is used.
func readSentry(v string, r *Report) {
	for v != "" {
		var item string
		item, v, _ = strings.Cut(v, ",")
		head, _, _ := strings.Cut(trimBlanks(item), ":")
		if n, ok := parseDecimal(trimBlanks(head)); ok && !n.negative {
			r.RetryAfter, r.HasRetryAfter, r.RetryFormat = max(r.RetryAfter, n.duration(time.Second)), true, FormatDeltaSeconds
		}
	}
}

// readMashery reads the error code of a Mashery gateway, which responds with 403 to all
// errors. A code such as ERR_403_DEVELOPER_OVER_QPS is a rejection because of a limit.
func readMashery(v string, r *Report) {
	r.Throttled = r.Throttled || strings.Contains(v, "_OVER_")
}

// readAmazonErrorType reads the code of an error, such as "ThrottlingException:http://internal.amazon.com/".
func readAmazonErrorType(v string, r *Report) {
	code, _, _ := strings.Cut(v, ":")
	if slices.Contains(amazonCodes, trimBlanks(code)) {
		r.Throttled, r.MinDelay = true, documentedDelay
	}
}

// readAuth0 reads "b=per_hour;q=100;r=99;t=1,b=per_day;q=300;r=299;t=1": how many access tokens a client or an
// organization may be issued.
func readAuth0(name, v string, r *Report) {
	for v != "" && len(r.Limits) < maxGroups {
		var item string
		item, v, _ = strings.Cut(v, ",")
		l := Limit{Name: name, Unit: "issued_tokens"}
		for pair := range strings.SplitSeq(item, ";") {
			key, value, _ := strings.Cut(trimBlanks(pair), "=")
			n, ok := parseDecimal(value)
			switch ok = ok && !n.negative; {
			case key == "b":
				m, _ := parseName(value)
				l.Name, l.Window = name+"-"+value, m.window
			case key == "q" && ok:
				l.Limit, l.HasLimit = n.whole, true
			case key == "r" && ok:
				l.Remaining, l.HasRemaining = n.whole, true
			case key == "t" && ok:
				l.ResetAfter, l.HasReset, l.ResetFormat = n.duration(time.Second), true, FormatDeltaSeconds
			}
		}
		if l.HasRemaining {
			r.Limits = append(r.Limits, l)
		}
	}
}

// readPingdom reads "Remaining: 394 Time until reset: 3589".
func readPingdom(name, v string, r *Report) {
	l := Limit{Name: name}
	if _, rest, ok := strings.Cut(v, "Remaining: "); ok {
		n, ok := parseDecimal(rest[:countPrefix(rest, isDigit)])
		l.Remaining, l.HasRemaining = n.whole, ok
	}
	if _, rest, ok := strings.Cut(v, "reset: "); ok {
		n, ok := parseDecimal(rest[:countPrefix(rest, isDigit)])
		l.ResetAfter, l.HasReset, l.ResetFormat = n.duration(time.Second), ok, FormatDeltaSeconds
	}
	if l.HasRemaining && len(r.Limits) < maxGroups {
		r.Limits = append(r.Limits, l)
	}
}
