package headers

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/heed-go/heed/internal/sfv"
)

// A decimal is a decimal number of a header: its whole part, and its fraction in
// billionths, rounded up. Larger numbers saturate.
type decimal struct {
	whole    int64
	nanos    int64
	negative bool
}

// parseDecimal parses a decimal number. Texts that only begin with a number, such as
// "1000abc", and the forms "0x10" and "1e3" are not valid.
func parseDecimal(s string) (n decimal, ok bool) {
	if s != "" && (s[0] == '-' || s[0] == '+') {
		n.negative = s[0] == '-'
		s = s[1:]
	}
	i := 0
	for ; i < len(s) && i < 18 && isDigit(s[i]); i++ {
		n.whole = n.whole*10 + int64(s[i]-'0')
	}
	for ; i < len(s) && isDigit(s[i]); i++ { // it may overflow
		hi, lo := bits.Mul64(uint64(n.whole), 10)
		lo += uint64(s[i] - '0')
		if n.whole = int64(lo); hi != 0 || lo > math.MaxInt64 {
			n.whole = math.MaxInt64
			i += countPrefix(s[i:], isDigit)
			break
		}
	}
	if i == 0 || i > maxDigits {
		return decimal{}, false
	}
	if i == len(s) {
		return n, true
	}
	if s[i] != '.' || i+1 == len(s) {
		return decimal{}, false
	}
	return n, n.fraction(s[i+1:])
}

// maxDigits is the maximum length of a text that is parsed as a number.
const maxDigits = 64

func (n *decimal) fraction(s string) bool {
	unit, more := int64(1e8), false
	for i := range len(s) {
		if !isDigit(s[i]) || i > maxDigits {
			return false
		}
		n.nanos += int64(s[i]-'0') * unit
		more = more || unit == 0 && s[i] != '0'
		unit /= 10
	}
	if more {
		n.nanos++
	}
	if n.nanos >= 1e9 && n.whole < math.MaxInt64 {
		n.whole, n.nanos = n.whole+1, 0
	}
	return true
}

func (n decimal) float() float64 { return float64(n.whole) + float64(n.nanos)/1e9 }

// A listEntry is one entry of a value with several entries, such as "100;w=60", "100:120",
// "32/40" or "DeleteVM3Min;237".
type listEntry struct {
	name      string
	n         decimal
	hasN      bool    // n is present
	second    decimal // the number after a slash
	hasSecond bool    // second is present
	window    time.Duration
}

// maxEntries is the maximum number of entries of one value.
const maxEntries = 16

// parseEntries parses a list of entries. It returns false if any of them is malformed,
// because the others are then not reliable. Three or more numbers separated by slashes are
// a list as well.
func parseEntries(s string, out *[maxEntries]listEntry) (n int, ok bool) {
	sep := byte(',')
	if strings.Count(s, "/") >= 2 && countPrefix(s, func(c byte) bool { return isDigit(c) || c == '/' }) == len(s) {
		sep = '/'
	}
	for s != "" && n < len(out) {
		var item string
		item, s = cutOutsideQuotes(s, sep)
		if item = trimBlanks(item); item == "" {
			continue
		}
		if !out[n].parse(item) {
			return 0, false
		}
		n++
	}
	return n, n > 0
}

func (e *listEntry) parse(s string) bool {
	head, params := cutOutsideQuotes(s, ';')
	head = trimBlanks(head)
	if !e.parseHead(head) {
		*e = listEntry{name: head}
	}
	for params != "" {
		var p string
		p, params = cutOutsideQuotes(params, ';')
		e.parseParam(trimBlanks(p))
	}
	return e.hasN
}

// parseHead parses the part before the parameters: "100", "100:60", "32/40", "100/hour",
// "100 per minute" or "QueriesPerHour:3".
func (e *listEntry) parseHead(s string) (ok bool) {
	digits := countPrefix(s, func(c byte) bool { return isDigit(c) || c == '.' || c == '-' || c == '+' })
	rest := trimBlanks(s[digits:])
	if e.n, ok = parseDecimal(s[:digits]); !ok {
		return e.parseNamed(s)
	}
	switch e.hasN = true; {
	case rest == "":
		return true
	case rest[0] == ':':
		e.second, ok = parseDecimal(trimBlanks(rest[1:]))
		e.window = e.second.duration(time.Second)
		return ok
	case rest[0] == '/':
		if e.second, e.hasSecond = parseDecimal(trimBlanks(rest[1:])); e.hasSecond {
			return true
		}
		e.window, ok = parsePeriod(trimBlanks(rest[1:]))
		return ok
	}
	_, rest, _ = strings.Cut(rest, "per ")
	e.window, ok = parsePeriod(rest)
	return ok
}

// parseNamed parses the count after a name: "QueriesPerHour:3".
func (e *listEntry) parseNamed(s string) (ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 || !isLetter(s[0]) {
		return false
	}
	e.n, ok = parseDecimal(s[i+1:])
	e.name, e.hasN = s[:i], ok
	return ok
}

// parsePeriod parses the duration after "per", such as "minute".
func parsePeriod(s string) (time.Duration, bool) {
	if unit := unitOfTime(s); unit > 0 {
		return unit, true
	}
	return parseDuration(s)
}

func (e *listEntry) parseParam(s string) {
	key, value, isPair := strings.Cut(s, "=")
	n, ok := parseDecimal(trimBlanks(value))
	switch key = trimBlanks(key); {
	case !isPair:
		if n, ok := parseDecimal(key); ok && !e.hasN { // DeleteVM3Min;237
			e.n, e.hasN = n, true
			e.window = windowSuffix(e.name)
		}
	case (key == "w" || key == "window") && ok:
		e.window = n.duration(time.Second)
	case key == "name":
		e.name = strings.Trim(trimBlanks(value), `"`)
	}
}

// windowSuffix returns the window at the end of the name of a bucket, such as
// DeleteVM30Min.
func windowSuffix(name string) time.Duration {
	letters := len(name)
	for letters > 0 && isLetter(name[letters-1]) {
		letters--
	}
	digits := letters
	for digits > 0 && letters-digits < 4 && isDigit(name[digits-1]) {
		digits--
	}
	if digits == letters {
		return 0
	}
	n, _ := parseDecimal(name[digits:letters])
	return n.duration(unitOfTime(name[letters:]))
}

// A header whose name contains no field states a complete limit in its value: as a
// structured field, as key=value pairs, or as JSON. Otherwise the value is the limit, next
// to a -Remaining header.

// readComposite reads such a value. It returns false if the remaining fields of the group
// must still be read.
func (p *parser) readComposite(g *headerGroup, s *headerValue) bool {
	v := trimBlanks(s.value)
	switch {
	case v[0:min(len(v), 1)] == "{":
		return p.readJSON(g, v)
	case p.readStructured(v):
		return true
	case strings.Contains(v, "=") && p.readPairs(g, v):
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
func (p *parser) readStructured(v string) bool {
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
		p.add(&found[i])
	}
	return n > 0
}

// readPairs reads key=value pairs, as of draft-07 and of vendors. A repeated key begins
// another limit.
func (p *parser) readPairs(g *headerGroup, v string) bool {
	start := limitBuilder{header: g.firstHeader, qualifierHash: g.qualifierHash}
	start.Unit, start.Window = g.unit, g.window
	start.Name = p.limitName(g)
	d, seen, added := start, uint(0), false
	flush := func() {
		if d.hasCounts() {
			p.add(&d)
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
		if t, ok := parseTime(value, m.scale, p.clock.received); ok {
			d.ResetAfter, d.HasReset, d.ResetFormat = p.clock.delayUntil(t), true, t.format
		}
	case KindWindow:
		if t, ok := parseTime(value, m.scale, p.clock.received); ok && t.format.IsDelta() {
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
func (p *parser) readJSON(g *headerGroup, v string) bool {
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
		p.add(&d)
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

// intParam returns the value of the parameter key of it. ok is false if there is no such
// parameter. valid is false if it is not an integer, or is negative.
func intParam(it *sfv.Item, key string) (n decimal, ok, valid bool) {
	v, ok := it.Param(key)
	if !ok {
		return decimal{}, false, true
	}
	n, ok = intValue(v)
	return n, ok, ok
}

// intValue returns v if it is a non-negative integer.
func intValue(v sfv.Value) (decimal, bool) {
	if v.Kind != sfv.Number || strings.IndexByte(v.Text, '.') >= 0 {
		return decimal{}, false
	}
	n, ok := parseDecimal(v.Text)
	return n, ok && !n.negative
}

// partitionKey returns the partition key of it, or "" if there is none. A value that is not
// a byte sequence, as the draft requires, is used unchanged. resolve limits its length.
func partitionKey(it *sfv.Item) string {
	v, ok := it.Param("pk")
	if !ok || v.Kind == sfv.Bool {
		return ""
	}
	if v.Kind == sfv.Bytes {
		if b, err := base64.StdEncoding.DecodeString(v.Text); err == nil {
			return string(b)
		}
	}
	return v.String()
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
func (p *parser) readLists(g *headerGroup, d limitBuilder) {
	var limit, remaining, used, reset valueList
	if window, ok := parseDuration(g.values[KindLimit].value); ok {
		d.Window = window // AspNetCoreRateLimit states the period there
	}
	limit.parse(&g.values[KindLimit])
	for i := range min(limit.n, len(g.windows)) {
		limit.entries[i].window = g.windows[i]
	}
	if v := g.values[KindLimit].value; limit.n == 0 && strings.Contains(v, "=") && p.readPairs(g, v) {
		return
	}
	remaining.parse(&g.values[KindRemaining])
	used.parse(&g.values[KindUsed])
	if limit.hasPolicies() {
		d.setCounts(optionalNumber{}, remaining.at(0).optional(), used.at(0).optional())
		p.readDraft03(&limit, d)
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
			p.add(&e)
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
func (p *parser) readDraft03(limit *valueList, d limitBuilder) {
	first := limit.at(0).n.whole
	in := limit.findPolicy(func(n int64) bool { return n == first })
	if d.HasRemaining && d.Remaining > first {
		if larger := limit.findPolicy(func(n int64) bool { return n >= d.Remaining }); larger.hasN {
			alone := limitBuilder{header: d.header, qualifierHash: d.qualifierHash}
			alone.setEntries(in, listEntry{}, listEntry{})
			alone.Unit, alone.Window = d.Unit, in.window
			p.add(&alone)
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
	p.add(&d)
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
