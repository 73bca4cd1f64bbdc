package headers

import (
	"strings"
	"time"
)

// Some values hold several numbers: a limit with the policies behind it, one
// number per window, or what is used and what is allowed.

// A valueList is one header of a bucket, taken apart.
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

// at returns entry i, or one that says nothing.
func (l *valueList) at(i int) listEntry {
	if i < l.n {
		return l.entries[i]
	}
	return listEntry{}
}

// forWindow returns the entry for a window, else entry i.
func (l *valueList) forWindow(window time.Duration, i int) listEntry {
	for j := range l.n {
		if window > 0 && l.entries[j].window == window {
			return l.entries[j]
		}
	}
	return l.at(i)
}

// readLists reads a group some of whose values hold more than one number. d is
// what the others say.
func (p *parser) readLists(g *headerGroup, d limitBuilder, l *builders) {
	var limit, remaining, used, reset valueList
	if window, ok := parseDuration(g.values[KindLimit].value); ok {
		d.Window = window // AspNetCoreRateLimit names the period there
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

// setEntries sets what one place of each list says.
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

// hasPolicies reports whether l is the form of the IETF drafts up to 03: the limit
// in force, and behind it, each with its window, all the limits there are.
func (l *valueList) hasPolicies() bool {
	return l.n > 1 && l.entries[0].window == 0 && !l.entries[0].hasSecond && l.entries[1].window > 0
}

// readDraft03 reads such a list. The policies are comments, save the one that says
// the window of the limit in force. If more remains than the limit in force
// allows, the state is that of a larger policy.
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

// findPolicy returns the first policy whose count fits.
func (l *valueList) findPolicy(fits func(int64) bool) listEntry {
	for _, e := range l.entries[1:max(l.n, 1)] {
		if fits(e.n.whole) {
			return e
		}
	}
	return listEntry{}
}
