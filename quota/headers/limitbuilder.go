package headers

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// A limitBuilder is a limit that may have to be merged with others.
type limitBuilder struct {
	Limit
	header        string // the first of its headers
	qualifierHash uint64 // of the bucket that its headers name
	unscaled      bool   // the reset was a number without a unit, next to a header with the window
	invalid       bool   // a count was negative, so the limit is unknown
	structured    bool   // from a structured field, so nothing is inferred
	hasPolicy     bool   // a policy was applied to it
	usedFraction  bool   // Used was stated with a fraction, which it omits
}

// hasCounts reports whether d states a number of units or a rate, and not only a time.
func (d *limitBuilder) hasCounts() bool {
	return d.HasLimit || d.HasRemaining || d.HasUsed || d.Rate > 0
}

// builders holds the limits of one response while they are assembled.
type builders struct {
	limits   []limitBuilder
	policies []headerValue
}

func (l *builders) add(d limitBuilder) {
	if len(l.limits) < maxGroups {
		l.limits = append(l.limits, d)
	}
}

// finish adds the limits of all groups to the report.
func (p *parser) finish() {
	l := &p.builders
	if len(p.groups) > 1 {
		slices.SortFunc(p.groups, func(a, b headerGroup) int { return cmp.Compare(a.firstHeader, b.firstHeader) })
	}
	for i := range p.groups {
		p.build(&p.groups[i], l)
	}
	p.readRetryHeaders()
	p.readCustom()
	p.applyPolicies(l)
	if len(l.limits) > 1 {
		l.merge()
	}
	for i := range l.limits {
		l.limits[i].deriveCounts()
	}
	p.out.Throttled = p.isThrottled(l.limits) || p.out.Throttled
	l.dropInvalid(p.out.Throttled)
	l.fixMilliseconds()
	p.fixRetryAfter(l)
	if p.out.Stale = p.age > 0; p.out.Stale {
		p.out.Limits = nil
		return
	}
	p.appendLimits(l.limits)
}

// readCustom reads the headers whose rules have their own function.
func (p *parser) readCustom() {
	slices.SortFunc(p.custom, func(a, b customHeader) int { return cmp.Compare(a.header, b.header) })
	for _, o := range p.custom {
		if len(o.value) <= maxValueLen {
			o.read(o.value, &p.out)
		}
	}
	p.out.explicit = p.out.Throttled // by one of these headers
}

// appendLimits appends the assembled limits to the report, in a stable order.
func (p *parser) appendLimits(list []limitBuilder) {
	if len(list) == 0 {
		return
	}
	p.out.Limits = slices.Grow(p.out.Limits, len(list))
	for i := range list {
		d := &list[i]
		if p.provider != nil {
			p.provider.applyHints(&d.Limit)
		}
		p.out.Limits = append(p.out.Limits, d.Limit)
	}
}

// build adds the limits of one group to l.
func (p *parser) build(g *headerGroup, l *builders) {
	if s := &g.values[KindPolicy]; s.value != "" {
		l.policies = append(l.policies, *s)
	}
	if s := &g.values[KindNone]; s.value != "" && p.readComposite(g, s, l) {
		return
	}
	d := limitBuilder{header: g.firstHeader, qualifierHash: g.qualifierHash}
	d.Unit, d.Window = g.unit, g.window
	d.Name = p.limitName(g)
	p.readReset(g, &d)
	p.readWindow(g, &d)
	if !p.readCounts(g, &d) {
		p.readLists(g, d, l)
		return
	}
	if !g.isRateLimit && !d.looksLikeLimit() {
		return
	}
	p.readRate(g, &d)
	if d.hasCounts() || d.HasReset || d.Window > 0 || d.Name != "" && g.qualifierHash == 0 {
		l.add(d)
	}
}

// looksLikeLimit reports whether the values are those of a limit, for names that do not
// mention rate limits.
func (d *limitBuilder) looksLikeLimit() bool {
	return d.HasRemaining || d.HasUsed && (d.HasLimit || d.Window > 0) || d.HasLimit && d.Window > 0
}

// limitName returns the name of the bucket: the value of a header that states it, or else
// the words of the header names.
func (p *parser) limitName(g *headerGroup) string {
	if s := &g.values[KindName]; s.value != "" {
		return truncate(s.value)
	}
	if g.qualifierHash == 0 || g.singleQualifier != "" {
		return g.singleQualifier
	}
	return qualifierName(g.firstHeader)
}

// readReset reads the reset. A delay takes precedence over an instant.
func (p *parser) readReset(g *headerGroup, d *limitBuilder) {
	for _, f := range [...]Kind{KindResetAfter, KindReset} {
		s := &g.values[f]
		if s.value == "" {
			continue
		}
		t, ok := parseTime(s.value, s.scale, p.received)
		if !ok {
			continue
		}
		if !d.HasReset || t.format.IsDelta() && !d.ResetFormat.IsDelta() {
			d.ResetAfter, d.HasReset, d.ResetFormat = p.delayUntil(t), true, t.format
			d.unscaled = t.format == FormatDeltaSeconds && s.scale == 0 && g.values[KindWindow].value != ""
		}
	}
}

// readWindow reads Interval, Period and similar fields: a duration, or a number in seconds,
// or in milliseconds if the reset is in milliseconds.
func (p *parser) readWindow(g *headerGroup, d *limitBuilder) {
	s := &g.values[KindWindow]
	if s.value == "" {
		return
	}
	scale := s.scale
	if scale == 0 && (d.ResetFormat == FormatEpochMillis || d.ResetFormat == FormatDeltaMillis) {
		scale = time.Millisecond
	}
	if t, ok := parseTime(s.value, scale, p.received); ok && t.format.IsDelta() {
		d.Window = t.delay
	} else if w, ok := parsePeriod(trimBlanks(s.value)); ok {
		d.Window = w
	}
}

// readCounts reads limit, remaining and used if each of them is one number. It returns
// false otherwise.
func (p *parser) readCounts(g *headerGroup, d *limitBuilder) bool {
	limit, ok := g.parseNumber(KindLimit)
	if !ok {
		return false
	}
	remaining, ok := g.parseNumber(KindRemaining)
	if !ok {
		return false
	}
	used, ok := g.parseNumber(KindUsed)
	if !ok {
		return false
	}
	d.invalid = limit.negative || remaining.negative
	d.setCounts(limit, remaining, used)
	return true
}

// An optionalNumber is a number that may be missing.
type optionalNumber struct {
	decimal
	present bool
}

// parseNumber parses one field. ok is false if the field contains more than one number.
func (g *headerGroup) parseNumber(f Kind) (c optionalNumber, ok bool) {
	s := &g.values[f]
	if s.value == "" {
		return c, true
	}
	c.decimal, ok = parseDecimal(trimBlanks(s.value))
	c.present = ok && !c.negative
	return c, ok
}

// setCounts sets the counts that are stated. Used counts up to the limit, so that it
// determines what remains. A limit with a fraction and without other counts is a rate per
// second.
func (d *limitBuilder) setCounts(limit, remaining, used optionalNumber) {
	if limit.present && limit.nanos != 0 && !remaining.present && !used.present {
		if d.Unit != unitPercent && d.Unit != unitFraction { // these are shares of a limit that is not stated
			d.Rate = limit.float()
		}
		return
	}
	if limit.present {
		d.Limit.Limit, d.HasLimit = limit.whole, true
	}
	if used.present {
		d.Used, d.HasUsed, d.usedFraction = used.whole, true, used.nanos > 0
		if limit.present {
			d.setRemaining()
		}
	}
	if remaining.present {
		d.Remaining, d.HasRemaining = remaining.whole, true
	}
}

// deriveCounts adds the counts that follow from the stated ones. A count in percent is one of
// 100. A fraction says neither how many units there are nor how many are left.
func (d *limitBuilder) deriveCounts() {
	switch {
	case d.Unit == unitFraction:
		d.HasLimit, d.HasRemaining, d.HasUsed = false, false, false
		d.Limit.Limit, d.Remaining, d.Used = 0, 0, 0
	case d.Unit == unitPercent && !d.HasLimit && (d.HasUsed || d.HasRemaining):
		d.Limit.Limit, d.HasLimit = 100, true
	}
	if d.HasLimit && d.HasUsed && !d.HasRemaining {
		d.setRemaining()
	}
}

// setRemaining sets what remains of the limit. A fraction of a unit counts as used.
func (d *limitBuilder) setRemaining() {
	d.Remaining, d.HasRemaining = d.Limit.Limit-d.Used, true
	if d.usedFraction {
		d.Remaining--
	}
	d.Remaining = max(d.Remaining, 0)
}

// Units of shares of a limit.
const (
	unitPercent  = "percent"
	unitFraction = "fraction"
)

// readRate reads the number of units that are restored in each window if there is one,
// otherwise in each second.
func (p *parser) readRate(g *headerGroup, d *limitBuilder) {
	n, ok := parseDecimal(trimBlanks(g.values[KindRate].value))
	if !ok || n.negative {
		return
	}
	d.Rate = n.float()
	if d.Window > 0 {
		d.Rate /= d.Window.Seconds()
	}
}

// merge merges builders that describe the same limit: in two spellings, repeated without
// the name, or in parts.
func (l *builders) merge() {
	for rule := mergeRespelled; rule <= mergeComplementary; rule++ {
		l.mergeBy(rule)
	}
	l.assignResets()
}

// A mergeRule is a reason for which two builders describe the same limit.
type mergeRule uint8

const (
	mergeRespelled mergeRule = iota
	mergeRepeated
	mergeUnnamed
	mergeComplementary
)

// mergeBy merges each builder into the first earlier one that the rule matches.
func (l *builders) mergeBy(rule mergeRule) {
	for i := 0; i < len(l.limits); i++ {
		for j := i + 1; j < len(l.limits); j++ {
			a, b := &l.limits[i], &l.limits[j]
			if a.matches(b, rule) || b.matches(a, rule) {
				a.mergeFrom(b)
				l.remove(j)
				j--
			}
		}
	}
}

func (a *limitBuilder) matches(b *limitBuilder, rule mergeRule) bool {
	switch rule {
	case mergeRespelled:
		return a.isRespelling(b)
	case mergeRepeated:
		return a.isRepetition(b)
	case mergeUnnamed:
		return a.isNamedLimitOf(b)
	}
	return a.isComplement(b)
}

func (l *builders) remove(i int) { l.limits = slices.Delete(l.limits, i, i+1) }

// isRespelling reports whether a and b describe the same bucket in different spellings of
// the name, such as X-Rate-Limit- and RateLimit-, without a difference in the values.
func (a *limitBuilder) isRespelling(b *limitBuilder) bool {
	return a.qualifierHash == b.qualifierHash && a.header != b.header && !a.structured && !b.structured &&
		a.Unit == b.Unit && a.isCompatible(b)
}

// isCompatible reports whether all values that both state are equal.
func (a *limitBuilder) isCompatible(b *limitBuilder) bool {
	return a.sameCounts(b) && !(a.Name != "" && b.Name != "" && a.Name != b.Name)
}

func (a *limitBuilder) sameCounts(b *limitBuilder) bool {
	return !(a.HasLimit && b.HasLimit && a.Limit.Limit != b.Limit.Limit) &&
		!(a.HasRemaining && b.HasRemaining && a.Remaining != b.Remaining) &&
		!(a.Window > 0 && b.Window > 0 && a.Window != b.Window)
}

// isRepetition reports whether b, which has no name or only the first words of the name of
// a, states the same values as a.
func (a *limitBuilder) isRepetition(b *limitBuilder) bool {
	named := strings.HasPrefix(a.Name, b.Name) && (b.Name == "" || len(a.Name) > len(b.Name) && a.Name[len(b.Name)] == '-')
	return named && a.HasLimit && b.HasLimit && a.HasRemaining && b.HasRemaining &&
		a.Unit == b.Unit && a.sameCounts(b)
}

// isNamedLimitOf reports whether a has a name with its window and only the limit, and b has
// no name and only the remaining units (RateLimit-DailyLimit and RateLimit-Remaining).
func (a *limitBuilder) isNamedLimitOf(b *limitBuilder) bool {
	return b.qualifierHash == 0 && a.HasLimit && !a.HasRemaining && !a.HasReset && b.HasRemaining && !b.HasLimit &&
		!a.structured && !b.structured && a.Unit == b.Unit
}

// isComplement reports whether a and b describe the same window and each states what the
// other does not (x-rate-limit-minute and x-minute-requests-left), or one has the limit and
// the other, whose name contains only requests, has the remaining units.
func (a *limitBuilder) isComplement(b *limitBuilder) bool {
	if a.structured || b.structured || a.Unit != b.Unit || a.HasLimit && b.HasLimit || a.HasRemaining && b.HasRemaining ||
		a.HasUsed && b.HasUsed || a.HasReset && b.HasReset {
		return false
	}
	return a.Window > 0 && a.Window == b.Window || a.HasLimit && b.HasRemaining && b.Name == "requests" && b.Window == 0
}

// mergeFrom adds the values that b states and a does not. A delay takes precedence over an
// instant.
func (a *limitBuilder) mergeFrom(b *limitBuilder) {
	if !a.HasLimit && b.HasLimit {
		a.Limit.Limit, a.HasLimit = b.Limit.Limit, true
	}
	if !a.HasRemaining && b.HasRemaining {
		a.Remaining, a.HasRemaining = b.Remaining, true
	}
	if !a.HasUsed && b.HasUsed {
		a.Used, a.HasUsed, a.usedFraction = b.Used, true, b.usedFraction
	}
	if b.HasReset && (!a.HasReset || b.ResetFormat.IsDelta() && !a.ResetFormat.IsDelta()) {
		a.ResetAfter, a.HasReset, a.ResetFormat, a.unscaled = b.ResetAfter, true, b.ResetFormat, b.unscaled
	}
	a.Window = max(a.Window, b.Window)
	a.Rate = max(a.Rate, b.Rate)
	if len(b.Name) > len(a.Name) {
		a.Name = b.Name
	}
	a.qualifierHash = max(a.qualifierHash, b.qualifierHash)
}

// assignResets assigns a reset, a window or a name that stands alone to the limit that
// lacks it: to the only one, otherwise to the tightest one.
func (l *builders) assignResets() {
	for i := 0; i < len(l.limits); i++ {
		d := &l.limits[i]
		if d.hasCounts() {
			continue
		}
		if to := l.findIncomplete(d); to != nil {
			to.mergeFrom(&limitBuilder{Limit: Limit{HasReset: d.HasReset, ResetAfter: d.ResetAfter, ResetFormat: d.ResetFormat, Window: d.Window}})
			l.remove(i)
			i--
		}
	}
}

func (l *builders) findIncomplete(d *limitBuilder) (to *limitBuilder) {
	for i := range l.limits {
		e := &l.limits[i]
		if !e.hasCounts() || d.HasReset && e.HasReset || d.Window > 0 && e.Window > 0 {
			continue
		}
		if to == nil || e.isTighter(to) {
			to = e
		}
	}
	return to
}

func (d *limitBuilder) isTighter(than *limitBuilder) bool {
	if d.HasRemaining && than.HasRemaining && (d.Remaining == 0) != (than.Remaining == 0) {
		return d.Remaining == 0
	}
	return d.Window > 0 && (than.Window == 0 || d.Window < than.Window)
}

// dropInvalid removes what is not a limit. Zeros in a response that is not a rejection mean
// that nothing is counted. A limit of zero in a rejection counts as not stated. A limit
// without counts is removed if a count was negative, which means unknown, or if it has no
// reset.
func (l *builders) dropInvalid(throttled bool) {
	for i := 0; i < len(l.limits); i++ {
		d := &l.limits[i]
		if throttled && d.Limit.Limit == 0 {
			d.HasLimit = false
		}
		switch {
		case d.isUsedOnly(),
			!d.hasCounts() && (d.invalid || !d.HasReset),
			!throttled && d.HasLimit && d.Limit.Limit == 0 && d.Remaining == 0 && d.ResetAfter == 0:
			l.remove(i)
			i--
		}
	}
}

// isUsedOnly reports whether d states only the units used, without a window. This is the
// cost of this request, or of no use.
func (d *limitBuilder) isUsedOnly() bool {
	return d.HasUsed && !d.HasLimit && !d.HasRemaining && !d.HasReset && d.Window == 0 && d.Rate == 0
}

// fixMilliseconds detects resets in milliseconds without a stated unit: one is longer than
// its own window, and read as milliseconds it equals the time in which the missing units
// are restored. If one reset of a response is in milliseconds, all are. Limits of the IETF
// drafts, which state the window with the number, are excluded, because they are in
// seconds.
func (l *builders) fixMilliseconds() {
	if !l.hasMillisecondResets() {
		return
	}
	for i := range l.limits {
		if d := &l.limits[i]; d.unscaled {
			d.ResetAfter, d.ResetFormat = d.ResetAfter/1000, FormatDeltaMillis
		}
	}
}

func (l *builders) hasMillisecondResets() bool {
	for i := range l.limits {
		d := &l.limits[i]
		if !d.unscaled || d.Window == 0 || d.ResetAfter <= d.Window || !d.HasRemaining || d.Limit.Limit <= d.Remaining {
			continue
		}
		missing := float64(d.Limit.Limit - d.Remaining)
		refill := time.Duration(missing / float64(d.Limit.Limit) * float64(boundDelay(d.Window)))
		if off := d.ResetAfter/1000 - refill; off.Abs() <= time.Millisecond+refill/100 {
			return true
		}
	}
	return false
}
