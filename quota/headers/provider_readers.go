package headers

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

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
