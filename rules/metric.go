package rules

import (
	"strings"
	"unicode"
)

// A metric is the name of the counters of a limit, with one level per descriptor. It has no levels
// for a limit of the section limits.
type metric struct {
	domain string
	levels []level
}

// A level is one descriptor on the path to a limit.
type level struct {
	key   string
	value string // value in the file; "" means any
	keyed bool   // the value of the request is part of the key of the limit
	shown bool   // the value of the request is part of the metric
}

// Metric returns the name of the counters for claims with the given key, in the format of
// envoyproxy/ratelimit: the domain and the descriptors, with the values of the file, or with those
// of the request for value_to_metric and detailed_metric. For a limit of the section limits it
// returns l.ID.
//
// With value_to_metric or detailed_metric there are as many names as values, which clients may
// choose freely. In values of requests ":", "|", blanks and control characters become "_", so that
// clients cannot add lines to what is sent to a metrics server.
func (l *Limit) Metric(key string) string {
	if len(l.metric.levels) == 0 {
		return l.ID
	}
	parts := l.splitKey(key)
	var b strings.Builder
	b.WriteString(l.metric.domain)
	for _, at := range l.metric.levels {
		b.WriteString("." + at.key)
		value := at.value
		if at.keyed && len(parts) > 0 {
			if at.shown {
				value = strings.Map(metricRune, parts[0])
			}
			parts = parts[1:]
		}
		if value != "" {
			b.WriteString("_" + value)
		}
	}
	return b.String()
}

// metricRune returns r, or '_' if r has a meaning in the line protocols of metrics servers.
func metricRune(r rune) rune {
	if r <= ' ' || r == ':' || r == '|' || unicode.IsControl(r) || unicode.IsSpace(r) {
		return '_'
	}
	return r
}

func (l *Limit) splitKey(key string) (parts []string) {
	n := 0
	for _, at := range l.metric.levels {
		if at.keyed {
			n++
		}
	}
	if n == 1 {
		return []string{key}
	}
	for rest := key; n > 0; n-- {
		part, after, ok := cutPart(rest)
		if !ok {
			return nil
		}
		parts, rest = append(parts, part), after
	}
	return parts
}
