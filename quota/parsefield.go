package quota

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// A header that names no field tells a whole limit in its value: as structured
// field, as key=value, as JSON; or it is the limit itself beside a -Remaining.

// readBare reads such a value. It returns false if the rest of the group is still
// to be read.
func (p *parser) readBare(g *group, s *slot, l *ledger) bool {
	v := trim(s.value)
	switch {
	case v[0:min(len(v), 1)] == "{":
		return p.readJSON(g, v, l)
	case p.readItems(v, l):
		return true
	case strings.Contains(v, "="):
		return p.readPairs(g, v, l)
	}
	if limit := &g.slots[FieldLimit]; limit.value == "" {
		var e [maxEntries]entry
		_, ok := splitEntries(v, &e)
		if ok && (g.span > 0 || e[0].window > 0 || e[0].pair || g.slots[FieldRemaining].value != "" || g.slots[FieldUsed].value != "") {
			*limit = *s
		}
	}
	return false
}

// readItems reads RateLimit as of draft-08: a list of "name";r=50;t=30. A mistake anywhere voids
// all of it, and so does a number that is no integer, or negative.
func (p *parser) readItems(v string, l *ledger) bool {
	r := sfReader{s: v, lenient: true}
	var it sfItem
	var found [maxEntries]draft
	n := 0
	for n < len(found) && r.next(&it) {
		if it.value.kind != sfString && it.value.kind != sfToken {
			continue
		}
		left, ok, valid := it.integer("r")
		t, timed, whole := it.integer("t")
		if !valid || !whole {
			return true
		}
		if !ok {
			continue
		}
		d := draft{header: "Ratelimit", state: true}
		d.Name = it.value.String()
		d.PartitionKey = it.partition()
		d.partitioned = d.PartitionKey != ""
		d.Remaining, d.HasRemaining = left.whole, true
		if timed {
			d.ResetAfter, d.HasReset, d.ResetForm = t.times(time.Second), true, DeltaSeconds
		}
		found[n] = d
		n++
	}
	if r.bad {
		return false
	}
	for i := range n {
		l.add(found[i])
	}
	return n > 0
}

// readPairs reads key=value, as of draft-07 and as vendors have it. A key that
// comes again begins another limit.
func (p *parser) readPairs(g *group, v string, l *ledger) bool {
	start := draft{header: g.rep, bucket: g.bucket}
	start.Unit, start.Window = g.unit, g.span
	start.Name = p.name(g)
	d, seen, added := start, uint(0), false
	flush := func() {
		if d.counted() {
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
		m, _ := readName(trim(key))
		if strings.Contains(value, "/") {
			m = meaning{} // api-usage=135/5000
		}
		if bit := uint(1) << m.field; seen&bit != 0 {
			flush()
			seen |= bit
		} else {
			seen |= bit
		}
		p.setPair(&d, m, trim(key), trim(value))
	}
	flush()
	return added
}

// setPair sets one field of d. A key that is no field names a limit of its own, used/limit.
func (p *parser) setPair(d *draft, m meaning, key, value string) {
	value = strings.Trim(value, `"`)
	n, isNumber := parseNumber(value)
	c := count{n, isNumber && !n.negative}
	switch m.field {
	case FieldLimit:
		d.count(c, count{}, count{})
	case FieldRemaining:
		d.count(count{}, c, count{})
	case FieldUsed:
		d.Used, d.HasUsed = n.whole, c.said
	case FieldReset, FieldResetAfter:
		if t, ok := parseInstant(value, m.scale, p.received); ok {
			d.ResetAfter, d.HasReset, d.ResetForm = p.delay(t), true, t.form
		}
	case FieldWindow:
		if t, ok := parseInstant(value, m.scale, p.received); ok && t.form.Relative() {
			d.Window = t.delay
		}
	case FieldName:
		d.Name = value
	case FieldNone, FieldPolicy:
		if used, limit, ok := strings.Cut(value, "/"); ok {
			u, ok1 := parseNumber(trim(used))
			m, ok2 := parseNumber(trim(limit))
			if ok1 && ok2 {
				d.Name = key
				d.count(count{m, true}, count{}, count{u, true})
			}
		}
	}
}

// readJSON reads a flat object, as Basecamp had it: its keys are the words that
// header names are made of.
func (p *parser) readJSON(g *group, v string, l *ledger) bool {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(v), &object) != nil {
		return true
	}
	d := draft{header: g.rep, bucket: g.bucket}
	d.Name = p.name(g)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		value := object[key]
		m, _ := readName(key)
		if key == "until" {
			m.field = FieldReset
		}
		if m.field != FieldNone && m.field != FieldPolicy {
			p.setPair(&d, m, key, string(value))
		}
	}
	if d.counted() {
		l.add(d)
	}
	return true
}
