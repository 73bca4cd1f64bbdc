package rules

import "strings"

// A metric is how counters of a limit are named, one level per descriptor. It has
// none for a limit that descriptors do not lead to.
type metric struct {
	domain string
	levels []level
}

// A level is one descriptor on the way to a limit.
type level struct {
	key   string
	value string // as the file has it; "": any
	keyed bool   // what the request has is part of the limit's key
	shown bool   // and is part of the metric
}

// Metric returns the name under which a claim with the given key is counted, as
// envoyproxy/ratelimit names it: the domain and the descriptors with the values that
// the file has, or with those of the request where the file says value_to_metric or
// detailed_metric. It is Place for a limit that descriptors do not lead to.
//
// Where the file has either word, there are as many names as values. Clients may
// send any number of them.
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
				value = parts[0]
			}
			parts = parts[1:]
		}
		if value != "" {
			b.WriteString("_" + value)
		}
	}
	return b.String()
}

// splitKey returns the values that make up a key of l.
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
