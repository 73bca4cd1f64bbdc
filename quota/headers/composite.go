package headers

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/internal/sfv"
)

// A header whose name contains no field states a complete limit in its value: as a
// structured field, as key=value pairs, or as JSON. Otherwise the value is the limit, next
// to a -Remaining header.

// readComposite reads such a value. It returns false if the remaining fields of the group
// must still be read.
func (p *parser) readComposite(g *headerGroup, s *headerValue, l *builders) bool {
	v := trimBlanks(s.value)
	switch {
	case v[0:min(len(v), 1)] == "{":
		return p.readJSON(g, v, l)
	case p.readStructured(v, l):
		return true
	case strings.Contains(v, "=") && p.readPairs(g, v, l):
		return true
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

// readStructured reads RateLimit as of draft-08: a list of "name";r=50;t=30. A syntax error
// anywhere invalidates the whole value, and so does a number that is negative or not an
// integer.
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

// readPairs reads key=value pairs, as of draft-07 and of vendors. A repeated key begins
// another limit.
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

// setPair sets one field of d. A key that is not a field names a separate limit with the
// value used/limit.
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
		d.setCounts(optionalNumber{}, optionalNumber{}, c)
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

// readJSON reads a flat object, as Basecamp sent it. Its keys consist of the words of
// header names.
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

// A policy is what RateLimit-Policy states about one limit: "name";q=100;w=60 since
// draft-08, 100;w=60 before.
type policy struct {
	name    string
	unit    string
	limit   int64
	window  time.Duration
	applied bool // it was applied to a limit

	partition string
}

// applyPolicies applies each policy to its limits. A policy whose name no limit has becomes
// a limit without a state. Policies without names are ignored if they match no limit,
// unless the response states nothing else.
func (p *parser) applyPolicies(l *builders) {
	for i := range l.policies {
		var all [maxEntries]policy
		n := parsePolicies(l.policies[i].value, &all)
		numStated := len(l.limits)
		l.applyByName(all[:n])
		l.applyBySize(all[:n])
		for j := range all[:n] {
			if q := &all[j]; !q.applied && (q.name != "" || numStated == 0) {
				l.add(q.builder())
			}
		}
	}
}

func (q *policy) builder() limitBuilder {
	d := limitBuilder{header: "Ratelimit-Policy", structured: true}
	d.Name, d.Unit, d.Window = q.name, q.unit, q.window
	d.Limit.Limit, d.HasLimit = q.limit, true
	d.PartitionKey = q.partition
	return d
}

// applyByName applies policies to limits of the same name: each to a limit of the same
// partition. A policy without a partition key then applies to the limits of all partitions
// that have no policy of their own, and one with a key to a limit without a key, because both
// describe the partition of the same request.
func (l *builders) applyByName(all []policy) {
	for i := range all {
		q := &all[i]
		q.applyTo(l, false, func(d *limitBuilder) bool { return d.PartitionKey == q.partition })
	}
	for i := range all {
		q := &all[i]
		switch {
		case q.partition == "":
			q.applyTo(l, true, func(d *limitBuilder) bool { return d.PartitionKey != "" })
		case !q.applied:
			q.applyTo(l, false, func(d *limitBuilder) bool { return d.PartitionKey == "" })
		}
	}
}

// applyTo applies q to the limits of its name without a policy that fits returns true for: to
// all of them, or to the first one.
func (q *policy) applyTo(l *builders, toAll bool, fits func(*limitBuilder) bool) {
	for i := range l.limits {
		if d := &l.limits[i]; q.name != "" && d.Name == q.name && !d.hasPolicy && fits(d) {
			d.applyPolicy(q)
			if !toAll {
				return
			}
		}
	}
}

// applyBySize applies policies without a name, and policies to limits without a name: to a
// limit of the same size, or to the only limit.
func (l *builders) applyBySize(all []policy) {
	for i := range all {
		q := &all[i]
		if q.applied {
			continue
		}
		fits := func(d limitBuilder) bool {
			return q.mayApply(&d) && d.HasLimit && d.Limit.Limit == q.limit && d.Window == 0
		}
		if j := slices.IndexFunc(l.limits, fits); j >= 0 {
			l.limits[j].applyPolicy(q)
		} else if len(l.limits) == 1 && q.mayApply(&l.limits[0]) && !l.limits[0].HasLimit && (len(all) == 1 || q.name == "") {
			l.limits[0].applyPolicy(q)
		}
	}
}

// mayApply reports whether names and partition keys allow that q describes d: one of the two
// has no name, and they are not of different partitions.
func (q *policy) mayApply(d *limitBuilder) bool {
	return (q.name == "" || d.Name == "") && (q.partition == "" || d.PartitionKey == "" || q.partition == d.PartitionKey)
}

func (d *limitBuilder) applyPolicy(q *policy) {
	q.applied, d.hasPolicy = true, true
	d.Limit.Limit, d.HasLimit = q.limit, true
	if q.window > 0 {
		d.Window = q.window
	}
	if q.unit != "" {
		d.Unit = q.unit
	}
	if d.Name == "" {
		d.Name = q.name
	}
	if d.PartitionKey == "" {
		d.PartitionKey = q.partition
	}
}

// parsePolicies parses the header. A syntax error anywhere invalidates the whole value, and
// so does a number that the draft does not allow.
func parsePolicies(v string, out *[maxEntries]policy) (n int) {
	r := sfv.NewParser(v, true)
	var it sfv.Item
	for n < len(out) && r.Next(&it) {
		ok, valid := out[n].parse(&it)
		if !valid {
			return 0
		}
		if ok {
			n++
		}
	}
	if r.Malformed() {
		return 0
	}
	return n
}

// parse parses one item. ok is false if it has no count, and valid is false if a number is
// malformed.
func (q *policy) parse(it *sfv.Item) (ok, valid bool) {
	var limit decimal
	*q = policy{}
	if it.Value.Kind == sfv.Number {
		limit, ok = intValue(it.Value)
		valid = ok
	} else {
		q.name = it.Value.String()
		limit, ok, valid = intParam(it, "q")
	}
	q.limit = limit.whole
	for _, key := range [...]string{"w", "window"} {
		w, has, whole := intParam(it, key)
		if valid = valid && whole; has {
			q.window = w.duration(time.Second)
		}
	}
	if qu, ok := it.Param("qu"); ok && (qu.Kind == sfv.String || qu.Kind == sfv.Token) {
		q.unit = normalizeUnit(qu.String())
	}
	if name, ok := it.Param("name"); ok && q.name == "" {
		q.name = name.String()
	}
	q.partition = partitionKey(it)
	return ok, valid
}

// normalizeUnit returns a unit in our spelling: "content-bytes" becomes content_bytes, and
// "requests" becomes "".
func normalizeUnit(s string) string {
	if s == "requests" {
		return ""
	}
	b := []byte(truncate(s))
	for i, c := range b {
		if c == '-' || c == ' ' {
			b[i] = '_'
		}
	}
	return string(toLower(b, string(b)))
}

// Some values contain several numbers: a limit followed by its policies, one number per
// window, or the units used and the limit.

// A valueList is one header of a bucket, parsed.
type valueList struct {
	entries [maxEntries]listEntry
	n       int
}

func (l *valueList) parse(s *headerValue) {
	if s.value == "" {
		return
	}
	n, ok := parseEntries(s.value, &l.entries)
	if !ok {
		return
	}
	l.n = n
}

// at returns entry i, or an empty entry.
func (l *valueList) at(i int) listEntry {
	if i < l.n {
		return l.entries[i]
	}
	return listEntry{}
}

// forWindow returns the entry for a window, or else entry i.
func (l *valueList) forWindow(window time.Duration, i int) listEntry {
	for j := range l.n {
		if window > 0 && l.entries[j].window == window {
			return l.entries[j]
		}
	}
	return l.at(i)
}

// readLists reads a group in which some values contain more than one number. d holds what
// the other values state.
func (p *parser) readLists(g *headerGroup, d limitBuilder, l *builders) {
	var limit, remaining, used, reset valueList
	if window, ok := parseDuration(g.values[KindLimit].value); ok {
		d.Window = window // AspNetCoreRateLimit states the period there
	}
	limit.parse(&g.values[KindLimit])
	for i := range min(limit.n, len(g.windows)) {
		limit.entries[i].window = g.windows[i]
	}
	if v := g.values[KindLimit].value; limit.n == 0 && strings.Contains(v, "=") && p.readPairs(g, v, l) {
		return
	}
	remaining.parse(&g.values[KindRemaining])
	used.parse(&g.values[KindUsed])
	if limit.hasPolicies() {
		d.setCounts(optionalNumber{}, remaining.at(0).optional(), used.at(0).optional())
		p.readDraft03(&limit, d, l)
		return
	}
	n := max(limit.n, remaining.n, used.n)
	if reset.parse(&g.values[KindReset]); reset.n != n || n < 2 {
		reset.n = 0
	}
	for i := range max(n, 1) {
		e := d
		if i > 0 {
			e.HasReset, e.ResetAfter, e.ResetFormat = false, 0, FormatNone
		}
		e.setEntries(limit.at(i), remaining.at(i), used.forWindow(limit.at(i).window, i))
		if reset.n > 0 {
			e.ResetAfter, e.HasReset, e.ResetFormat = reset.at(i).n.duration(time.Second), true, FormatDeltaSeconds
		}
		if (g.isRateLimit || e.looksLikeLimit()) && (e.hasCounts() || e.HasReset || e.Window > 0) {
			l.add(e)
		}
	}
}

// setEntries sets what one entry of each list states.
func (d *limitBuilder) setEntries(limit, remaining, used listEntry) {
	switch {
	case limit.hasSecond: // used/limit
		d.setCounts(optionalNumber{limit.second, true}, optionalNumber{}, optionalNumber{limit.n, true})
	case remaining.hasSecond: // remaining/limit
		d.setCounts(optionalNumber{remaining.second, true}, optionalNumber{remaining.n, true}, optionalNumber{})
	default:
		d.setCounts(limit.optional(), remaining.optional(), used.optional())
	}
	for _, e := range [...]listEntry{used, remaining, limit} {
		if e.window > 0 {
			d.Window = e.window
		}
		if e.name != "" {
			d.Name = e.name
		}
	}
}

func (e listEntry) optional() optionalNumber { return optionalNumber{e.n, e.hasN && !e.n.negative} }

// hasPolicies reports whether l has the form of the IETF drafts up to 03: the current
// limit, followed by all limits, each with its window.
func (l *valueList) hasPolicies() bool {
	return l.n > 1 && l.entries[0].window == 0 && !l.entries[0].hasSecond && l.entries[1].window > 0
}

// readDraft03 reads such a list. The policies are ignored, except for the one that states
// the window of the current limit. If more units remain than the current limit allows, the
// state belongs to a larger policy.
func (p *parser) readDraft03(limit *valueList, d limitBuilder, l *builders) {
	first := limit.at(0).n.whole
	in := limit.findPolicy(func(n int64) bool { return n == first })
	if d.HasRemaining && d.Remaining > first {
		if larger := limit.findPolicy(func(n int64) bool { return n >= d.Remaining }); larger.hasN {
			alone := limitBuilder{header: d.header, qualifierHash: d.qualifierHash}
			alone.setEntries(in, listEntry{}, listEntry{})
			alone.Unit, alone.Window = d.Unit, in.window
			l.add(alone)
			in, first = larger, larger.n.whole
		}
	}
	d.Limit.Limit, d.HasLimit = first, true
	if in.window > 0 {
		d.Window = in.window
	}
	if in.name != "" {
		d.Name = in.name
	}
	l.add(d)
}

// findPolicy returns the first policy with a count for which fits returns true.
func (l *valueList) findPolicy(fits func(int64) bool) listEntry {
	for _, e := range l.entries[1:max(l.n, 1)] {
		if fits(e.n.whole) {
			return e
		}
	}
	return listEntry{}
}
