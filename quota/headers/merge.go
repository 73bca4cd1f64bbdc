package headers

import (
	"slices"
	"strings"
	"time"
)

// merge joins drafts that are one limit: told in two spellings, told again
// without its name, or told in pieces.
func (l *builders) merge() {
	for rule := mergeRespelled; rule <= mergeComplementary; rule++ {
		l.mergeBy(rule)
	}
	l.assignResets()
}

// A mergeRule is a way for two drafts to be one limit.
type mergeRule uint8

const (
	mergeRespelled mergeRule = iota
	mergeRepeated
	mergeUnnamed
	mergeComplementary
)

// mergeBy merges every later draft into the first earlier one that it is like.
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

// isRespelling: the same bucket under another spelling of the name, X-Rate-Limit-
// beside RateLimit-, and nothing said differs.
func (a *limitBuilder) isRespelling(b *limitBuilder) bool {
	return a.qualifierHash == b.qualifierHash && a.header != b.header && !a.structured && !b.structured &&
		a.Unit == b.Unit && a.isCompatible(b)
}

// isCompatible reports whether nothing that both say differs.
func (a *limitBuilder) isCompatible(b *limitBuilder) bool {
	return a.sameCounts(b) && !(a.Name != "" && b.Name != "" && a.Name != b.Name)
}

func (a *limitBuilder) sameCounts(b *limitBuilder) bool {
	return !(a.HasLimit && b.HasLimit && a.Limit.Limit != b.Limit.Limit) &&
		!(a.HasRemaining && b.HasRemaining && a.Remaining != b.Remaining) &&
		!(a.Window > 0 && b.Window > 0 && a.Window != b.Window)
}

// isRepetition: b, which has no name or only the first words of it, says what a says.
func (a *limitBuilder) isRepetition(b *limitBuilder) bool {
	named := strings.HasPrefix(a.Name, b.Name) && (b.Name == "" || len(a.Name) > len(b.Name) && a.Name[len(b.Name)] == '-')
	return named && a.HasLimit && b.HasLimit && a.HasRemaining && b.HasRemaining &&
		a.Unit == b.Unit && a.sameCounts(b)
}

// isNamedLimitOf: one names its window and has only the limit, the other has no name and only
// what remains (RateLimit-DailyLimit beside RateLimit-Remaining).
func (a *limitBuilder) isNamedLimitOf(b *limitBuilder) bool {
	return b.qualifierHash == 0 && a.HasLimit && !a.HasRemaining && !a.HasReset && b.HasRemaining && !b.HasLimit &&
		!a.structured && !b.structured && a.Unit == b.Unit
}

// isComplement: each says of one window what the other does not (x-rate-limit-minute
// beside x-minute-requests-left), or one has the limit and the other, which is
// named after requests and nothing else, only what remains.
func (a *limitBuilder) isComplement(b *limitBuilder) bool {
	if a.structured || b.structured || a.Unit != b.Unit || a.HasLimit && b.HasLimit || a.HasRemaining && b.HasRemaining ||
		a.HasUsed && b.HasUsed || a.HasReset && b.HasReset {
		return false
	}
	return a.Window > 0 && a.Window == b.Window || a.HasLimit && b.HasRemaining && b.Name == "requests" && b.Window == 0
}

// mergeFrom adds what b says and a does not. A delay comes before a moment.
func (a *limitBuilder) mergeFrom(b *limitBuilder) {
	if !a.HasLimit && b.HasLimit {
		a.Limit.Limit, a.HasLimit = b.Limit.Limit, true
	}
	if !a.HasRemaining && b.HasRemaining {
		a.Remaining, a.HasRemaining = b.Remaining, true
	}
	if !a.HasUsed && b.HasUsed {
		a.Used, a.HasUsed = b.Used, true
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

// assignResets gives a reset, a window or a name that stands alone to the limit
// that lacks it: to the only one, else to the tightest.
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

// dropInvalid takes out what is no limit. Zeros on an answer that was served mean that
// nothing is counted; a limit of zero on a refusal was not said; a reset of
// nothing, beside counts that are negative, means that they are unknown.
func (l *builders) dropInvalid(throttled bool) {
	for i := 0; i < len(l.limits); i++ {
		d := &l.limits[i]
		switch {
		case d.isUsedOnly(),
			!d.hasCounts() && (d.invalid || !d.HasReset),
			!throttled && d.HasLimit && d.Limit.Limit == 0 && d.Remaining == 0 && d.ResetAfter == 0:
			l.remove(i)
			i--
		case throttled && d.HasLimit && d.Limit.Limit == 0:
			d.HasLimit = false
		}
	}
}

// isUsedOnly reports whether d says only how much was used, and not in what time:
// that is what this one request took, or what nobody can do anything with.
func (d *limitBuilder) isUsedOnly() bool {
	return d.HasUsed && !d.HasLimit && !d.HasRemaining && !d.HasReset && d.Window == 0 && d.Rate == 0
}

// fixMilliseconds finds resets in milliseconds that do not say so: one is beyond its
// own window, and as milliseconds just what the missing units take to come back.
// If one reset of an answer is, all are. The IETF drafts, which have the window
// behind a number, are not suspected: they say seconds.
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
