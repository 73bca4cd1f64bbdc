package quota

import (
	"slices"
	"strings"
	"time"
)

// merge joins drafts that are one limit: told in two spellings, told again
// without its name, or told in pieces.
func (l *ledger) merge() {
	for how := respelling; how <= completion; how++ {
		l.join(how)
	}
	l.spreadResets()
}

// A likeness is a way for two drafts to be one limit.
type likeness uint8

const (
	respelling likeness = iota
	repetition
	supplement
	completion
)

// join merges every later draft into the first earlier one that it is like.
func (l *ledger) join(how likeness) {
	for i := 0; i < len(l.list); i++ {
		for j := i + 1; j < len(l.list); j++ {
			a, b := &l.list[i], &l.list[j]
			if a.like(b, how) || b.like(a, how) {
				a.absorb(b)
				l.remove(j)
				j--
			}
		}
	}
}

func (a *draft) like(b *draft, how likeness) bool {
	switch how {
	case respelling:
		return a.respells(b)
	case repetition:
		return a.repeats(b)
	case supplement:
		return a.supplements(b)
	}
	return a.completes(b)
}

func (l *ledger) remove(i int) { l.list = slices.Delete(l.list, i, i+1) }

// respells: the same bucket under another spelling of the name, X-Rate-Limit-
// beside RateLimit-, and nothing said differs.
func (a *draft) respells(b *draft) bool {
	return a.bucket == b.bucket && a.header != b.header && !a.state && !b.state &&
		a.Unit == b.Unit && a.agrees(b)
}

// agrees reports whether nothing that both say differs.
func (a *draft) agrees(b *draft) bool {
	return a.sameCounts(b) && !(a.Name != "" && b.Name != "" && a.Name != b.Name)
}

func (a *draft) sameCounts(b *draft) bool {
	return !(a.HasLimit && b.HasLimit && a.Limit.Limit != b.Limit.Limit) &&
		!(a.HasRemaining && b.HasRemaining && a.Remaining != b.Remaining) &&
		!(a.Window > 0 && b.Window > 0 && a.Window != b.Window)
}

// repeats: b, which has no name or only the first words of it, says what a says.
func (a *draft) repeats(b *draft) bool {
	named := strings.HasPrefix(a.Name, b.Name) && (b.Name == "" || len(a.Name) > len(b.Name) && a.Name[len(b.Name)] == '-')
	return named && a.HasLimit && b.HasLimit && a.HasRemaining && b.HasRemaining &&
		a.Unit == b.Unit && a.sameCounts(b)
}

// supplements: one names its window and has only the limit, the other has no name and only
// what remains (RateLimit-DailyLimit beside RateLimit-Remaining).
func (a *draft) supplements(b *draft) bool {
	return b.bucket == 0 && a.HasLimit && !a.HasRemaining && !a.HasReset && b.HasRemaining && !b.HasLimit &&
		!a.state && !b.state && a.Unit == b.Unit
}

// completes: each says of one window what the other does not (x-rate-limit-minute
// beside x-minute-requests-left), or one has the limit and the other, which is
// named after requests and nothing else, only what remains.
func (a *draft) completes(b *draft) bool {
	if a.state || b.state || a.Unit != b.Unit || a.HasLimit && b.HasLimit || a.HasRemaining && b.HasRemaining ||
		a.HasUsed && b.HasUsed || a.HasReset && b.HasReset {
		return false
	}
	return a.Window > 0 && a.Window == b.Window || a.HasLimit && b.HasRemaining && b.Name == "requests" && b.Window == 0
}

// absorb adds what b says and a does not. A delay comes before a moment.
func (a *draft) absorb(b *draft) {
	if !a.HasLimit && b.HasLimit {
		a.Limit.Limit, a.HasLimit = b.Limit.Limit, true
	}
	if !a.HasRemaining && b.HasRemaining {
		a.Remaining, a.HasRemaining = b.Remaining, true
	}
	if !a.HasUsed && b.HasUsed {
		a.Used, a.HasUsed = b.Used, true
	}
	if b.HasReset && (!a.HasReset || b.ResetForm.Relative() && !a.ResetForm.Relative()) {
		a.ResetAfter, a.HasReset, a.ResetForm, a.bare = b.ResetAfter, true, b.ResetForm, b.bare
	}
	a.Window = max(a.Window, b.Window)
	a.Rate = max(a.Rate, b.Rate)
	if len(b.Name) > len(a.Name) {
		a.Name = b.Name
	}
	a.bucket = max(a.bucket, b.bucket)
}

// spreadResets gives a reset, a window or a name that stands alone to the limit
// that lacks it: to the only one, else to the tightest.
func (l *ledger) spreadResets() {
	for i := 0; i < len(l.list); i++ {
		d := &l.list[i]
		if d.counted() {
			continue
		}
		if to := l.lacking(d); to != nil {
			to.absorb(&draft{Limit: Limit{HasReset: d.HasReset, ResetAfter: d.ResetAfter, ResetForm: d.ResetForm, Window: d.Window}})
			l.remove(i)
			i--
		}
	}
}

func (l *ledger) lacking(d *draft) (to *draft) {
	for i := range l.list {
		e := &l.list[i]
		if !e.counted() || d.HasReset && e.HasReset || d.Window > 0 && e.Window > 0 {
			continue
		}
		if to == nil || e.tighter(to) {
			to = e
		}
	}
	return to
}

func (d *draft) tighter(than *draft) bool {
	if d.HasRemaining && than.HasRemaining && (d.Remaining == 0) != (than.Remaining == 0) {
		return d.Remaining == 0
	}
	return d.Window > 0 && (than.Window == 0 || d.Window < than.Window)
}

// drop takes out what is no limit. Zeros on an answer that was served mean that
// nothing is counted; a limit of zero on a refusal was not said; a reset of
// nothing, beside counts that are negative, means that they are unknown.
func (l *ledger) drop(refused bool) {
	for i := 0; i < len(l.list); i++ {
		d := &l.list[i]
		switch {
		case d.spentOnly(),
			!d.counted() && (d.void || !d.HasReset),
			!refused && d.HasLimit && d.Limit.Limit == 0 && d.Remaining == 0 && d.ResetAfter == 0:
			l.remove(i)
			i--
		case refused && d.HasLimit && d.Limit.Limit == 0:
			d.HasLimit = false
		}
	}
}

// spentOnly reports whether d says only how much was used, and not in what time:
// that is what this one request took, or what nobody can do anything with.
func (d *draft) spentOnly() bool {
	return d.HasUsed && !d.HasLimit && !d.HasRemaining && !d.HasReset && d.Window == 0 && d.Rate == 0
}

// mendMillis finds resets in milliseconds that do not say so: one is beyond its
// own window, and as milliseconds just what the missing units take to come back.
// If one reset of an answer is, all are. The IETF drafts, which have the window
// behind a number, are not suspected: they say seconds.
func (l *ledger) mendMillis() {
	if !l.millis() {
		return
	}
	for i := range l.list {
		if d := &l.list[i]; d.bare {
			d.ResetAfter, d.ResetForm = d.ResetAfter/1000, DeltaMillis
		}
	}
}

func (l *ledger) millis() bool {
	for i := range l.list {
		d := &l.list[i]
		if !d.bare || d.Window == 0 || d.ResetAfter <= d.Window || !d.HasRemaining || d.Limit.Limit <= d.Remaining {
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
