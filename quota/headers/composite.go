package headers

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/internal/sfv"
)

// A header that names no field tells a whole limit in its value: as structured
// field, as key=value, as JSON; or it is the limit itself beside a -Remaining.

// readComposite reads such a value. It returns false if the rest of the group is still
// to be read.
func (p *parser) readComposite(g *headerGroup, s *headerValue, l *builders) bool {
	v := trimBlanks(s.value)
	switch {
	case v[0:min(len(v), 1)] == "{":
		return p.readJSON(g, v, l)
	case p.readStructured(v, l):
		return true
	case strings.Contains(v, "="):
		return p.readPairs(g, v, l)
	}
	if limit := &g.values[KindLimit]; limit.value == "" {
		var e [maxEntries]listEntry
		_, ok := parseEntries(v, &e)
		if ok && (g.window > 0 || e[0].window > 0 || e[0].hasSecond || g.values[KindRemaining].value != "" || g.values[KindUsed].value != "") {
			*limit = *s
		}
	}
	return false
}

// readStructured reads RateLimit as of draft-08: a list of "name";r=50;t=30. A mistake anywhere voids
// all of it, and so does a number that is no integer, or negative.
func (p *parser) readStructured(v string, l *builders) bool {
	r := sfv.NewParser(v, true)
	var it sfv.Item
	var found [maxEntries]limitBuilder
	n := 0
	for n < len(found) && r.Next(&it) {
		if it.Value.Kind != sfv.String && it.Value.Kind != sfv.Token {
			continue
		}
		left, ok, valid := intParam(&it, "r")
		t, hasReset, resetValid := intParam(&it, "t")
		if !valid || !resetValid {
			return true
		}
		if !ok {
			continue
		}
		d := limitBuilder{header: "Ratelimit", structured: true}
		d.Name = it.Value.String()
		d.PartitionKey = partitionKey(&it)
		d.partitioned = d.PartitionKey != ""
		d.Remaining, d.HasRemaining = left.whole, true
		if hasReset {
			d.ResetAfter, d.HasReset, d.ResetFormat = t.duration(time.Second), true, FormatDeltaSeconds
		}
		found[n] = d
		n++
	}
	if r.Malformed() {
		return false
	}
	for i := range n {
		l.add(found[i])
	}
	return n > 0
}

// readPairs reads key=value, as of draft-07 and as vendors have it. A key that
// comes again begins another limit.
func (p *parser) readPairs(g *headerGroup, v string, l *builders) bool {
	start := limitBuilder{header: g.firstHeader, qualifierHash: g.qualifierHash}
	start.Unit, start.Window = g.unit, g.window
	start.Name = p.limitName(g)
	d, seen, added := start, uint(0), false
	flush := func() {
		if d.hasCounts() {
			l.add(d)
			added = true
		}
		d, seen = start, 0
	}
	for v != "" {
		var item string
		if i := strings.IndexAny(v, ",;"); i >= 0 {
			item, v = v[:i], v[i+1:]
		} else {
			item, v = v, ""
		}
		key, value, ok := strings.Cut(item, "=")
		if !ok {
			continue
		}
		m, _ := parseName(trimBlanks(key))
		if strings.Contains(value, "/") {
			m = nameInfo{} // api-usage=135/5000
		}
		if bit := uint(1) << m.kind; seen&bit != 0 {
			flush()
			seen |= bit
		} else {
			seen |= bit
		}
		p.setPair(&d, m, trimBlanks(key), trimBlanks(value))
	}
	flush()
	return added
}

// setPair sets one field of d. A key that is no field names a limit of its own, used/limit.
func (p *parser) setPair(d *limitBuilder, m nameInfo, key, value string) {
	value = strings.Trim(value, `"`)
	n, isNumber := parseDecimal(value)
	c := optionalNumber{n, isNumber && !n.negative}
	switch m.kind {
	case KindLimit:
		d.setCounts(c, optionalNumber{}, optionalNumber{})
	case KindRemaining:
		d.setCounts(optionalNumber{}, c, optionalNumber{})
	case KindUsed:
		d.Used, d.HasUsed = n.whole, c.present
	case KindReset, KindResetAfter:
		if t, ok := parseTime(value, m.scale, p.received); ok {
			d.ResetAfter, d.HasReset, d.ResetFormat = p.delayUntil(t), true, t.format
		}
	case KindWindow:
		if t, ok := parseTime(value, m.scale, p.received); ok && t.format.IsDelta() {
			d.Window = t.delay
		}
	case KindName:
		d.Name = value
	case KindNone, KindPolicy:
		if used, limit, ok := strings.Cut(value, "/"); ok {
			u, ok1 := parseDecimal(trimBlanks(used))
			m, ok2 := parseDecimal(trimBlanks(limit))
			if ok1 && ok2 {
				d.Name = key
				d.setCounts(optionalNumber{m, true}, optionalNumber{}, optionalNumber{u, true})
			}
		}
	}
}

// readJSON reads a flat object, as Basecamp had it: its keys are the words that
// header names are made of.
func (p *parser) readJSON(g *headerGroup, v string, l *builders) bool {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(v), &object) != nil {
		return true
	}
	d := limitBuilder{header: g.firstHeader, qualifierHash: g.qualifierHash}
	d.Name = p.limitName(g)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		value := object[key]
		m, _ := parseName(key)
		if key == "until" {
			m.kind = KindReset
		}
		if m.kind != KindNone && m.kind != KindPolicy {
			p.setPair(&d, m, key, string(value))
		}
	}
	if d.hasCounts() {
		l.add(d)
	}
	return true
}
