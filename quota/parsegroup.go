package quota

import (
	"cmp"
	"slices"
	"time"
)

// A draft is a limit that may still have to be joined with others.
type draft struct {
	Limit
	header string // the first of its headers
	bucket uint64 // which bucket its headers name
	bare   bool   // the reset was a number without a unit, beside a window in a header of its own
	void   bool   // a count was negative: what is allowed is not known
	state  bool   // out of a structured field: nothing in it is a guess
}

// counted reports whether d says how much, and not only until when.
func (d *draft) counted() bool {
	return d.HasLimit || d.HasRemaining || d.HasUsed || d.Rate > 0
}

// A ledger is the limits of one answer while they are put together.
type ledger struct {
	list     []draft
	policies []slot
}

func (l *ledger) add(d draft) {
	if len(l.list) < maxGroups {
		l.list = append(l.list, d)
	}
}

// conclude turns the groups into the report.
func (p *parser) conclude() {
	l := &p.ledger
	if len(p.groups) > 1 {
		slices.SortFunc(p.groups, func(a, b group) int { return cmp.Compare(a.rep, b.rep) })
	}
	for i := range p.groups {
		p.read(&p.groups[i], l)
	}
	p.readRetries()
	p.readOdd()
	p.applyPolicies(l)
	if len(l.list) > 1 {
		l.merge()
	}
	p.out.Throttled = p.throttled(l.list) || p.out.Throttled
	l.drop(p.out.Throttled)
	l.mendMillis()
	p.mendRetry(l)
	if p.out.Stale = p.age > 0; p.out.Stale {
		p.out.Limits = nil
		return
	}
	p.report(l.list)
}

// readOdd reads the headers that rows of the table read themselves.
func (p *parser) readOdd() {
	slices.SortFunc(p.odd, func(a, b odd) int { return cmp.Compare(a.header, b.header) })
	for _, o := range p.odd {
		if len(o.value) <= maxValue {
			o.read(o.value, &p.out)
		}
	}
	p.out.marked = p.out.Throttled // by one of them
}

// report hands out what has been put together, in a stable order.
func (p *parser) report(list []draft) {
	if len(list) == 0 {
		return
	}
	p.out.Limits = slices.Grow(p.out.Limits, len(list))
	for i := range list {
		d := &list[i]
		if p.vendor != nil {
			p.vendor.complete(&d.Limit)
		}
		p.out.Limits = append(p.out.Limits, d.Limit)
	}
}

// read turns one group into drafts.
func (p *parser) read(g *group, l *ledger) {
	if s := &g.slots[FieldPolicy]; s.value != "" {
		l.policies = append(l.policies, *s)
	}
	if s := &g.slots[FieldNone]; s.value != "" && p.readBare(g, s, l) {
		return
	}
	d := draft{header: g.rep, bucket: g.bucket}
	d.Unit, d.Window = g.unit, g.span
	d.Name = p.name(g)
	p.readReset(g, &d)
	p.readWindow(g, &d)
	if !p.readCounts(g, &d) {
		p.readLists(g, d, l)
		return
	}
	if !g.marked && !d.trusted() {
		return
	}
	p.readRate(g, &d)
	if d.counted() || d.HasReset || d.Window > 0 || d.Name != "" && g.bucket == 0 {
		l.add(d)
	}
}

// trusted reports whether the values look like those of a limit, where the names
// do not say so.
func (d *draft) trusted() bool {
	return d.HasRemaining || d.HasUsed && (d.HasLimit || d.Window > 0) || d.HasLimit && d.Window > 0
}

// name returns the bucket's name: the value of a header that is there to tell
// it, else the words of the headers' names.
func (p *parser) name(g *group) string {
	if s := &g.slots[FieldName]; s.value != "" {
		return truncate(s.value)
	}
	if g.bucket == 0 || g.single != "" {
		return g.single
	}
	return bucketName(g.rep)
}

// readReset takes the delay before the moment.
func (p *parser) readReset(g *group, d *draft) {
	for _, f := range [...]Field{FieldResetAfter, FieldReset} {
		s := &g.slots[f]
		if s.value == "" {
			continue
		}
		t, ok := parseInstant(s.value, s.scale, p.received)
		if !ok {
			continue
		}
		if !d.HasReset || t.form.Relative() && !d.ResetForm.Relative() {
			d.ResetAfter, d.HasReset, d.ResetForm = p.delay(t), true, t.form
			d.bare = t.form == DeltaSeconds && s.scale == 0 && g.slots[FieldWindow].value != ""
		}
	}
}

// readWindow reads Interval, Period and their like: a duration, or a number in
// seconds, or in milliseconds if the reset is.
func (p *parser) readWindow(g *group, d *draft) {
	s := &g.slots[FieldWindow]
	if s.value == "" {
		return
	}
	scale := s.scale
	if scale == 0 && (d.ResetForm == EpochMillis || d.ResetForm == DeltaMillis) {
		scale = time.Millisecond
	}
	if t, ok := parseInstant(s.value, scale, p.received); ok && t.form.Relative() {
		d.Window = t.delay
	} else if w, ok := perTime(trim(s.value)); ok {
		d.Window = w
	}
}

// readCounts reads limit, remaining and used where each is one number, as usual.
// It returns false if one of them is something else.
func (p *parser) readCounts(g *group, d *draft) bool {
	limit, ok := g.count(FieldLimit)
	if !ok {
		return false
	}
	remaining, ok := g.count(FieldRemaining)
	if !ok {
		return false
	}
	used, ok := g.count(FieldUsed)
	if !ok {
		return false
	}
	d.void = limit.negative || remaining.negative
	d.count(limit, remaining, used)
	return true
}

// A count is a number that may be missing.
type count struct {
	number
	said bool
}

// count reads one field; ok is false if it holds more than one number.
func (g *group) count(f Field) (c count, ok bool) {
	s := &g.slots[f]
	if s.value == "" {
		return c, true
	}
	c.number, ok = parseNumber(trim(s.value))
	c.said = ok && !c.negative
	return c, ok
}

// count sets what is said. Used counts up to the limit, so that it says what
// remains. A limit of a fraction, alone, is no count but a rate per second.
func (d *draft) count(limit, remaining, used count) {
	if limit.said && limit.nanos != 0 && !remaining.said && !used.said {
		if d.Unit != "percent" && d.Unit != "fraction" { // which are shares of a limit that is not stated
			d.Rate = limit.float()
		}
		return
	}
	if limit.said {
		d.Limit.Limit, d.HasLimit = limit.whole, true
	}
	if used.said {
		d.Used, d.HasUsed = used.whole, true
		if limit.said {
			d.Remaining, d.HasRemaining = max(limit.whole-used.whole, 0), true
		}
	}
	if remaining.said {
		d.Remaining, d.HasRemaining = remaining.whole, true
	}
}

// readRate reads how much comes back: in each window if there is one, else in
// each second.
func (p *parser) readRate(g *group, d *draft) {
	n, ok := parseNumber(trim(g.slots[FieldRate].value))
	if !ok || n.negative {
		return
	}
	d.Rate = n.float()
	if d.Window > 0 {
		d.Rate /= d.Window.Seconds()
	}
}
