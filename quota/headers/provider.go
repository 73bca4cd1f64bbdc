package headers

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/heed-go/heed/internal/httphost"
)

// A Provider says what the answers of one API leave open: what a name means that the
// rules cannot read, in which unit a bare number is, how long a window is.
// Everything in it is optional.
type Provider struct {
	Name               string          // for people
	Hosts              []string        // "api.github.com"; ".zendesk.com" is every host below
	Headers            map[string]Rule // by header name in canonical form
	LimitHints         []LimitHint     // what the answers do not say; the first that fits counts
	ThrottledStatuses  []int           // statuses that refuse because of a limit, besides 429
	InspectSuccessBody bool            // refusals show in bodies only: look into those of successes too

	// AccountParams are query parameters that name the account, besides api_key and apikey: "key".
	AccountParams []string

	// ErrorCodes are error codes that refuse because of a limit, on any status from 400 on. They
	// count at the known places of JSON, and as words of XML and prose.
	ErrorCodes []string
}

// A Rule is what one header says.
type Rule struct {
	Kind    Kind
	Name    string          // of the bucket; headers with the same one belong together
	Unit    string          // what is counted; "": requests
	Scale   time.Duration   // unit of time of a bare number; 0: by its size
	Windows []time.Duration // of the numbers in the value, in order
	Unique  bool            // the name is unmistakable: it means this on every host

	// Read reads values that have a grammar of their own. It adds to r.
	Read func(value string, r *Report)
}

// A Kind is what the value of a header is.
type Kind uint8

const (
	KindNone       Kind = iota // nothing that matters
	KindLimit                  // most units in a window
	KindRemaining              // units left
	KindUsed                   // units spent
	KindReset                  // when units come back: a moment or a delay
	KindResetAfter             // when units come back: a delay
	KindWindow                 // length of the window
	KindRate                   // units that come back each second, or each window
	KindName                   // name of the bucket
	KindPolicy                 // limits with their windows
	KindRetryAfter             // when to come again

	// Not about limits, but needed to read them.
	kindDate
	kindAge
)

// A LimitHint completes a limit that the answer has named in part. Zero fields of
// the first group fit every limit, zero fields of the second set nothing.
type LimitHint struct {
	Name         string // the limit's name in the answer; "-": it has none
	StatedUnit   string // the limit's unit in the answer
	Limit        int64  // the limit's size in the answer
	WithoutLimit bool   // the answer does not say the limit's size

	Rename string        // what to call it
	Unit   string        // its true unit
	Max    int64         // its size, where the answer does not say
	Window time.Duration // its window, where the answer does not say
}

// applyHints fills in what the answer has left out.
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

// isThrottledStatus reports whether status is a refusal at v.
func (p *Provider) isThrottledStatus(status int) bool {
	for _, s := range p.ThrottledStatuses {
		if s == status {
			return true
		}
	}
	return false
}

// ProviderByName returns the row of the built-in table for an API by the name that
// people call it.
func ProviderByName(name string) (Provider, bool) {
	for i := range providers {
		if p := &providers[i]; len(name) >= len(p.Name) && equalFold(name[:len(p.Name)], p.Name) {
			return *p, true
		}
	}
	return Provider{}, false
}

// builtinProvider returns the row of the built-in table for a host, nil if it has none:
// that of the host itself, else that of the nearest domain above.
func builtinProvider(host string) *Provider {
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

var providersByHost = sync.OnceValue(func() map[string]*Provider {
	m := make(map[string]*Provider)
	for i := range providers {
		for _, host := range providers[i].Hosts {
			m[host] = &providers[i]
		}
	}
	return m
})

// AccountParams returns the query parameters that identify the account in requests to host, as
// far as its Provider lists them. They do not include api_key and apikey.
func (r *Reader) AccountParams(host string) []string {
	host = httphost.Name(host)
	if p, ok := r.Hosts[host]; ok {
		return p.AccountParams
	}
	if p := builtinProvider(host); p != nil && !r.NoProviderTable {
		return p.AccountParams
	}
	return nil
}

// Readers of the headers that have a grammar of their own, for the table.

// readMetaUsage reads the usage headers of Meta: JSON with what is used up in
// percent, and in minutes when access comes back. Some have a list of that per
// business.
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

// readSentry reads "60:transaction:key, 2700:default;error:organization": how long
// each category of data is refused. Ours may be any of them, so the longest counts.
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

// readMashery reads the code of a refusal by a Mashery gateway, which says 403 for
// all that goes wrong: ERR_403_DEVELOPER_OVER_QPS is one because of a limit.
func readMashery(v string, r *Report) {
	r.Throttled = r.Throttled || strings.Contains(v, "_OVER_")
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
