package headers

import (
	"cmp"
	"crypto/sha256"
	"math"
	"net/http"
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
	vague         bool   // the names of its headers may be those of a quota of seats or storage
}

// hasCounts reports whether d states a number of units or a rate, and not only a time.
func (d *limitBuilder) hasCounts() bool {
	return d.HasLimit || d.HasRemaining || d.HasUsed || d.Rate > 0
}

// finish adds the limits of all groups to the report, and whether it is a rejection.
func (p *parser) finish(status int) {
	out := &p.out
	out.Stale = p.clock.age > 0 || p.cached
	if len(p.groups)+len(p.retryHeaders)+len(p.custom) == 0 {
		out.Throttled = isRejection(p.provider, status, false, false)
		return
	}
	p.buildLimits()
	p.readRetryHeaders()
	p.readCustom()
	p.mergeLimits()
	out.Throttled = out.Throttled || isRejection(p.provider, status, out.HasRetryAfter, !out.Stale && p.anyExhausted())
	p.checkLimits()
}

// buildLimits makes limits of the groups.
func (p *parser) buildLimits() {
	if len(p.groups) > 1 {
		p.sortGroups()
	}
	for i := range p.groups {
		p.build(&p.groups[i])
	}
}

// sortGroups sorts the groups by their first headers. That of a group without a name is
// determined here, because it is not needed if there is only one group.
func (p *parser) sortGroups() {
	for i := range p.groups {
		g := &p.groups[i]
		for _, s := range g.values {
			if s.header != "" && s.header < g.firstHeader {
				g.firstHeader = s.header
			}
		}
	}
	slices.SortFunc(p.groups, func(a, b headerGroup) int { return cmp.Compare(a.firstHeader, b.firstHeader) })
}

// mergeLimits merges the limits and policies that describe the same limit.
func (p *parser) mergeLimits() {
	if len(p.policies) > 0 {
		p.applyPolicies()
	}
	if len(p.limits) > 1 {
		p.merge()
	}
	for i := range p.limits {
		p.limits[i].deriveCounts()
	}
}

// checkLimits corrects what contradicts other limits, and appends the limits to the report.
func (p *parser) checkLimits() {
	p.dropInvalid(p.out.Throttled)
	p.fixMilliseconds()
	p.fixRetryAfter()
	if p.out.Stale {
		p.out.Limits = nil
		return
	}
	p.appendLimits()
}

// add adds a limit, unless there are too many.
func (p *parser) add(d *limitBuilder) {
	if l := p.newLimit(); l != nil {
		*l = *d
	}
}

// newLimit appends an empty limit. It returns nil if there are too many.
func (p *parser) newLimit() *limitBuilder {
	n := len(p.limits)
	if n == maxGroups {
		return nil
	}
	if n == cap(p.limits) {
		p.limits = append(p.limits, limitBuilder{})
	}
	p.limits = p.limits[:n+1] // cleared by reset and remove
	return &p.limits[n]
}

// readCustom reads the headers whose rules have their own function.
func (p *parser) readCustom() {
	if len(p.custom) == 0 {
		return
	}
	slices.SortFunc(p.custom, func(a, b customHeader) int { return cmp.Compare(a.header, b.header) })
	for _, o := range p.custom {
		if len(o.value) <= maxValueLen {
			o.read(o.value, &p.out)
		}
	}
}

// appendLimits appends the assembled limits to the report, in a stable order.
func (p *parser) appendLimits() {
	if p.out.Limits == nil && len(p.limits) > 0 {
		p.out.Limits = make([]Limit, 0, len(p.limits))
	}
	for i := range p.limits {
		l := &p.limits[i].Limit
		if p.provider != nil {
			p.provider.applyHints(l)
		}
		p.out.Limits = append(p.out.Limits, *l)
	}
}

// build adds the limits of one group.
func (p *parser) build(g *headerGroup) {
	if s := &g.values[KindPolicy]; s.value != "" {
		p.policies = append(p.policies, *s)
	}
	if s := &g.values[KindNone]; s.value != "" && p.readComposite(g, s) {
		return
	}
	n := len(p.limits)
	d := p.newLimit()
	if d == nil {
		return
	}
	d.header, d.qualifierHash = g.firstHeader, g.qualifierHash
	d.Unit, d.Window = g.unit, g.window
	d.vague = g.vague
	d.Name = p.limitName(g)
	p.readReset(g, d)
	p.readWindow(g, d)
	if !p.readCounts(g, d) {
		common := *d
		p.remove(n)
		p.readLists(g, common)
		return
	}
	p.readRate(g, d)
	if !g.isRateLimit && !d.looksLikeLimit() || !d.hasCounts() && !d.HasReset && d.Window == 0 && (d.Name == "" || g.qualifierHash != 0) {
		p.remove(n)
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
		t, ok := parseTime(s.value, s.scale, p.clock.received)
		if !ok {
			continue
		}
		if !d.HasReset || t.format.IsDelta() && !d.ResetFormat.IsDelta() {
			d.ResetAfter, d.HasReset, d.ResetFormat = p.clock.delayUntil(t), true, t.format
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
	if t, ok := parseTime(s.value, scale, p.clock.received); ok && t.format.IsDelta() {
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
	if d.vague && d.Unit == "" && !d.HasReset && d.Window == 0 && d.Rate == 0 {
		d.Unit = unitUnknown
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

// unitUnknown is the unit of a quota, usage or plan that may count something else than requests.
const unitUnknown = "unknown"

// unitConcurrent is the unit of limits of requests in flight.
const unitConcurrent = "concurrent_requests"

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
func (p *parser) merge() {
	for _, same := range [...]func(a, b *limitBuilder) bool{
		(*limitBuilder).isRespelling, (*limitBuilder).isRepetition, (*limitBuilder).isNamedLimitOf, (*limitBuilder).isComplement,
	} {
		p.mergeBy(same)
	}
	p.assignResets()
}

// mergeBy merges each builder into the first earlier one that describes the same limit, according to same.
func (p *parser) mergeBy(same func(a, b *limitBuilder) bool) {
	for i := 0; i < len(p.limits); i++ {
		for j := i + 1; j < len(p.limits); j++ {
			a, b := &p.limits[i], &p.limits[j]
			if same(a, b) || same(b, a) {
				a.mergeFrom(b)
				p.remove(j)
				j--
			}
		}
	}
}

func (p *parser) remove(i int) { p.limits = slices.Delete(p.limits, i, i+1) }

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
	a.vague = a.vague && b.vague
	a.Window = max(a.Window, b.Window)
	a.Rate = max(a.Rate, b.Rate)
	if len(b.Name) > len(a.Name) {
		a.Name = b.Name
	}
	a.qualifierHash = max(a.qualifierHash, b.qualifierHash)
}

// assignResets assigns a reset, a window or a name that stands alone to the limit that
// lacks it: to the only one, otherwise to the tightest one.
func (p *parser) assignResets() {
	for i := 0; i < len(p.limits); i++ {
		d := &p.limits[i]
		if d.hasCounts() {
			continue
		}
		if to := p.findIncomplete(d); to != nil {
			to.mergeFrom(&limitBuilder{Limit: Limit{HasReset: d.HasReset, ResetAfter: d.ResetAfter, ResetFormat: d.ResetFormat, Window: d.Window}})
			p.remove(i)
			i--
		}
	}
}

func (p *parser) findIncomplete(d *limitBuilder) (to *limitBuilder) {
	for i := range p.limits {
		e := &p.limits[i]
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
func (p *parser) dropInvalid(throttled bool) {
	for i := 0; i < len(p.limits); i++ {
		d := &p.limits[i]
		if throttled && d.Limit.Limit == 0 {
			d.HasLimit = false
		}
		if d.isUsedOnly() || !d.hasCounts() && (d.invalid || !d.HasReset) ||
			!throttled && d.HasLimit && d.Limit.Limit == 0 && d.Remaining == 0 && d.ResetAfter == 0 {
			p.remove(i)
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
func (p *parser) fixMilliseconds() {
	if !p.hasMillisecondResets() {
		return
	}
	for i := range p.limits {
		if d := &p.limits[i]; d.unscaled {
			d.ResetAfter, d.ResetFormat = d.ResetAfter/1000, FormatDeltaMillis
		}
	}
}

func (p *parser) hasMillisecondResets() bool {
	for i := range p.limits {
		d := &p.limits[i]
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

// applyPolicies applies each policy to its limits. A policy whose name no limit has becomes
// a limit without a state. Policies without names are ignored if they match no limit,
// unless the response states nothing else.
func (p *parser) applyPolicies() {
	for i := range p.policies {
		var all [maxEntries]policy
		n := parsePolicies(p.policies[i].value, &all)
		numStated := len(p.limits)
		p.applyByName(all[:n])
		p.applyBySize(all[:n])
		for j := range all[:n] {
			if q := &all[j]; !q.applied && (q.name != "" || numStated == 0) {
				d := q.builder()
				p.add(&d)
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
func (p *parser) applyByName(all []policy) {
	for i := range all {
		q := &all[i]
		q.applyTo(p, false, func(d *limitBuilder) bool { return d.PartitionKey == q.partition })
	}
	for i := range all {
		q := &all[i]
		switch {
		case q.partition == "":
			q.applyTo(p, true, func(d *limitBuilder) bool { return d.PartitionKey != "" })
		case !q.applied:
			q.applyTo(p, false, func(d *limitBuilder) bool { return d.PartitionKey == "" })
		}
	}
}

// applyTo applies q to the limits of its name without a policy that fits returns true for: to
// all of them, or to the first one.
func (q *policy) applyTo(p *parser, toAll bool, fits func(*limitBuilder) bool) {
	for i := range p.limits {
		if d := &p.limits[i]; q.name != "" && d.Name == q.name && !d.hasPolicy && fits(d) {
			d.applyPolicy(q)
			if !toAll {
				return
			}
		}
	}
}

// applyBySize applies policies without a name, and policies to limits without a name: to a
// limit of the same size, or to the only limit.
func (p *parser) applyBySize(all []policy) {
	for i := range all {
		q := &all[i]
		if q.applied {
			continue
		}
		fits := func(d limitBuilder) bool {
			return q.mayApply(&d) && d.HasLimit && d.Limit.Limit == q.limit && d.Window == 0
		}
		if j := slices.IndexFunc(p.limits, fits); j >= 0 {
			p.limits[j].applyPolicy(q)
		} else if len(p.limits) == 1 && q.mayApply(&p.limits[0]) && !p.limits[0].HasLimit && (len(all) == 1 || q.name == "") {
			p.limits[0].applyPolicy(q)
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

// A Statement is what a rejection states about its end. The values are ordered from the
// least to the most precise.
type Statement uint8

const (
	NotStated   Statement = iota // the response is not a rejection, or does not state until when
	StatedLimit                  // one of Report.Limits has no units left, and states when units are restored if HasReset
	StatedWait                   // Report.Wait is the time after which to retry, possibly 0
)

var statementNames = [...]string{"not stated", "limit", "wait"}

// String returns the name of s in lower case.
func (s Statement) String() string {
	if int(s) < len(statementNames) {
		return statementNames[s]
	}
	return "unknown statement"
}

// resolve completes r after headers or body have been read: it limits every number to its
// range and derives Stated and Wait. It may be called again after more has been read.
func (r *Report) resolve(status int) {
	r.RetryAfter = boundDelay(r.RetryAfter)
	for i := range r.Limits {
		r.Limits[i].bound()
	}
	if r.Throttled && r.RetryAfter == 0 && r.anyExhausted(true) {
		r.HasRetryAfter, r.RetryFormat = false, FormatNone
	}
	r.Stated, r.Wait = NotStated, 0
	if r.Throttled || status == http.StatusServiceUnavailable && r.HasRetryAfter {
		r.Stated, r.Wait = r.statement()
	}
}

// statement returns what a rejection states.
func (r *Report) statement() (Statement, time.Duration) {
	if r.HasRetryAfter {
		return StatedWait, r.RetryAfter
	}
	if r.anyExhausted(true) {
		return StatedLimit, 0
	}
	if reset, ok := r.earliestReset(); ok {
		return StatedWait, reset
	}
	wait := r.documentedWait
	if wait == 0 && r.provider != nil {
		wait = r.provider.RejectionWait
	}
	switch {
	case wait > 0:
		return StatedWait, wait
	case r.anyExhausted(false):
		return StatedLimit, 0
	}
	return NotStated, 0
}

// anyExhausted reports whether a limit has no units left, and also states that units are restored later if
// withTime is true.
func (r *Report) anyExhausted(withTime bool) bool {
	return slices.ContainsFunc(r.Limits, func(l Limit) bool {
		return l.HasRemaining && l.Remaining == 0 && (!withTime || l.ResetAfter > 0 || l.Rate > 0)
	})
}

// earliestReset returns the reset of a rejection that states only resets: no limit states
// what is left. It returns the earliest reset, because the response does not state which
// limit rejected the request. It ignores a reset of 0, which servers send with limits that
// they do not apply.
func (r *Report) earliestReset() (reset time.Duration, ok bool) {
	for i := range r.Limits {
		l := &r.Limits[i]
		if l.HasRemaining {
			return 0, false
		}
		if l.HasReset && l.ResetAfter > 0 && (!ok || l.ResetAfter < reset) {
			reset, ok = l.ResetAfter, true
		}
	}
	return reset, ok
}

// bound limits the numbers of l to their ranges: counts are never negative, delays and
// windows are in [0, MaxDelay], and rates are finite.
func (l *Limit) bound() {
	l.Name, l.Unit, l.PartitionKey = truncate(l.Name), truncate(l.Unit), boundKey(l.PartitionKey)
	l.Limit, l.Remaining, l.Used = max(l.Limit, 0), max(l.Remaining, 0), max(l.Used, 0)
	l.ResetAfter, l.Window = boundDelay(l.ResetAfter), boundDelay(l.Window)
	if !(l.Rate >= 0) || math.IsInf(l.Rate, 1) {
		l.Rate = 0
	}
}

// truncate returns the first maxNameLen bytes of a name.
func truncate(name string) string { return name[:min(len(name), maxNameLen)] }

// boundKey returns a partition key of at most maxNameLen bytes. The end of a longer key is
// replaced by a hash of the key, so that different partitions keep different keys.
func boundKey(key string) string {
	if len(key) <= maxNameLen {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return key[:maxNameLen-len(sum)] + string(sum[:])
}

// boundDelay returns d, at least 0 and at most MaxDelay.
func boundDelay(d time.Duration) time.Duration { return min(max(d, 0), MaxDelay) }

// anyExhausted reports whether one of the assembled limits of requests, or of requests in flight, has
// no units left. What is left of credits or tokens does not tell why a request was rejected.
func (p *parser) anyExhausted() bool {
	for i := range p.limits {
		if l := &p.limits[i]; l.HasRemaining && l.Remaining == 0 && (l.Unit == "" || l.Unit == unitConcurrent) {
			return true
		}
	}
	return false
}

// MaxDelay is the longest delay or window that a Report contains: 366 days. Longer values are
// reduced to it. There are quotas per month, and there may be quotas per year.
const MaxDelay = 366 * 24 * time.Hour
